// Definitions that our manifests are checked against, and their versions. Nothing is built from these modules.
module compute-operator.local/testbed/definitions

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/karmada-io/karmada v1.18.2
	github.com/prometheus-operator/prometheus-operator v0.85.0
)
