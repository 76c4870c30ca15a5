# shellcheck shell=bash
# Versions, names and paths that the scripts of this folder share. They read this file by `source`.
# shellcheck disable=SC2034 # each script uses some of them

# Pinned versions. The node image is that of the kind release.
KIND_VERSION=v0.32.0
NODE_IMAGE=kindest/node:v1.36.1@sha256:3489c7674813ba5d8b1a9977baea8a6e553784dab7b84759d1014dbd78f7ebd5
HELM_VERSION=v3.21.4
KARMADA_VERSION=v1.18.2
KARMADA_CHART="https://github.com/karmada-io/karmada/releases/download/$KARMADA_VERSION/karmada-chart-$KARMADA_VERSION.tgz"
# The suites use `kubectl wait --for=create`.
KUBECTL_AT_LEAST=1.31

# Clusters: the hub's Karmada and the project's control plane share the first one.
CONTROL_PLANE=compute-control-plane
CITIES=(dfw ord)
IMAGE=compute-operator:e2e
# Port of Karmada's API server on the first cluster's node, for this machine and the cells.
HUB_PORT=32443

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
KUBECONFIGS=$ROOT/tmp/e2e/kubeconfigs
LOGS=$ROOT/tmp/e2e/logs

# Prints the purpose of a step, with the time.
say() {
  printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

# Lists of paths, such as KUBECONFIG, cannot contain a path with a colon. chainsaw also splits the paths of clusters at `=`.
case $ROOT in
  *[=:]*)
    say "the path $ROOT contains = or :, which kubectl and chainsaw cannot read; move the checkout"
    exit 3
    ;;
esac

# Fails with the names of the missing programs.
need() {
  local program missing=()
  for program in "$@"; do
    command -v "$program" > /dev/null || missing+=("$program")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    say "missing: ${missing[*]}; e2e/README.md says where each comes from"
    exit 3
  fi
}

# Fails if kubectl is too old.
need_kubectl() {
  need kubectl
  local version
  version=$(kubectl version --client --output json | sed -n 's/.*"gitVersion": *"v\([0-9]*\.[0-9]*\).*/\1/p')
  if [ "$(printf '%s\n' "$KUBECTL_AT_LEAST" "$version" | sort --version-sort | head -n 1)" != "$KUBECTL_AT_LEAST" ]; then
    say "kubectl is $version; the suites need $KUBECTL_AT_LEAST or newer"
    exit 3
  fi
}

# kubectl for the project's control plane, the hub, or the cell of a city.
project() { kubectl --kubeconfig "$KUBECONFIGS/control-plane.yaml" "$@"; }
hub() { kubectl --kubeconfig "$KUBECONFIGS/karmada.yaml" "$@"; }
cell() {
  local city=$1
  shift
  kubectl --kubeconfig "$KUBECONFIGS/pop-$city.yaml" "$@"
}
