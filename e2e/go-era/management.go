package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	. "compute-operator.local/go-era/v1alpha"
)

const (
	city              = "topology.datum.net/city-code"
	upstreamCluster   = "meta.datumapis.com/upstream-cluster-name"
	upstreamNamespace = "meta.datumapis.com/upstream-namespace"
)

// tenancy is one namespace of a project, with all control planes that hold its objects.
type tenancy struct {
	project, tenant, hub plane
	cells                map[string]cell
	namespace, onHub     string
}

// deployment is one Workload in one city.
type deployment struct {
	workload
	city string
	spec WorkloadDeploymentSpec
}

func (d deployment) name() string {
	return fmt.Sprintf("%s-%s-%s", d.workload.name, d.spec.PlacementName, strings.ToLower(d.city))
}

// fanOut creates the WorkloadDeployments of a Workload, as the Workload controller does.
func (t tenancy) fanOut(ctx context.Context, each workload) ([]deployment, error) {
	if err := t.project.finalizer(ctx, "Workload", t.namespace, each.name, group+"workload-controller"); err != nil {
		return nil, err
	}
	owner, err := t.project.get(ctx, "Workload", t.namespace, each.name)
	if err != nil {
		return nil, err
	}
	// The server's answer has the template with defaults.
	if each.spec, err = as[WorkloadSpec](owner.Object["spec"]); err != nil {
		return nil, err
	}
	var made []deployment
	for _, place := range each.spec.Placements {
		for _, code := range place.CityCodes {
			d := deployment{workload: each, city: code, spec: WorkloadDeploymentSpec{
				WorkloadRef:   WorkloadReference{Name: each.name, UID: string(owner.GetUID())},
				PlacementName: place.Name, CityCode: code, Template: each.spec.Template, ScaleSettings: place.ScaleSettings,
				Replicas: &place.ScaleSettings.MinReplicas,
			}}
			labels := map[string]string{group + "workload-uid": string(owner.GetUID())}
			fields := map[string]any{"spec": d.spec}
			if _, err := t.project.ensure(ctx, "WorkloadDeployment", t.namespace, d.name(), labels, reference(owner, true), fields); err != nil {
				return nil, err
			}
			made = append(made, d)
		}
	}
	return made, nil
}

// resolve copies the referenced data of a deployment to the hub, as the referenced-data controller does.
func (t tenancy) resolve(ctx context.Context, d deployment) error {
	if len(d.data) == 0 {
		return nil
	}
	if err := t.project.finalizer(ctx, "WorkloadDeployment", t.namespace, d.name(), group+"referenced-data-controller"); err != nil {
		return err
	}
	user := t.namespace + "/" + d.name()
	for _, token := range d.data {
		kind, name, _ := strings.Cut(token, "/")
		source, err := t.project.get(ctx, kind, t.namespace, name)
		if err != nil {
			return err
		}
		fields := map[string]any{"data": source.Object["data"]}
		if kind == "Secret" {
			fields["type"] = source.Object["type"]
		}
		labels := map[string]string{group + "referenced-data": "true"}
		if _, err := t.hub.ensure(ctx, kind, t.onHub, name, labels, nil, fields); err != nil {
			return err
		}
		_, err = t.hub.update(ctx, kind, t.onHub, name, func(live *object) {
			var users []string
			_ = json.Unmarshal([]byte(live.GetAnnotations()[group+"referenced-by"]), &users)
			// Deployments are processed in the order of their names, so that the list is sorted.
			text, _ := json.Marshal(append(users, user))
			annotate(group+"referenced-by", string(text))(live)
		})
		if err != nil {
			return err
		}
	}
	tokens, err := json.Marshal(d.data)
	if err != nil {
		return err
	}
	if _, err := t.project.update(ctx, "WorkloadDeployment", t.namespace, d.name(), annotate(group+"expected-referenced-data", string(tokens))); err != nil {
		return err
	}
	_, err = t.project.report(ctx, "WorkloadDeployment", t.namespace, d.name(), func(live *object) {
		text := fmt.Sprintf("All %d referenced companion(s) are materialised", len(d.data))
		status := WorkloadDeploymentStatus{Conditions: []metav1.Condition{condition("ReferencedDataReady", "True", "Ready", text, live.GetGeneration())}}
		live.Object["status"] = plain(status)
	})
	return err
}

// federate copies a deployment and the policy of its city to the hub, as the federator does.
func (t tenancy) federate(ctx context.Context, d deployment) error {
	if err := t.project.finalizer(ctx, "WorkloadDeployment", t.namespace, d.name(), group+"federator"); err != nil {
		return err
	}
	labels := map[string]string{upstreamCluster: "cluster-single", upstreamNamespace: t.namespace}
	if _, err := t.hub.ensure(ctx, "Namespace", "", t.onHub, labels, nil, nil); err != nil {
		return err
	}
	original, err := t.project.update(ctx, "WorkloadDeployment", t.namespace, d.name(), annotate(group+"federation-namespace", t.onHub))
	if err != nil {
		return err
	}
	labels = original.GetLabels()
	labels[city], labels[upstreamNamespace] = d.city, t.namespace
	fields := map[string]any{"spec": original.Object["spec"]}
	if _, err := t.hub.ensure(ctx, "WorkloadDeployment", t.onHub, d.name(), labels, nil, fields); err != nil {
		return err
	}
	if expected, ok := original.GetAnnotations()[group+"expected-referenced-data"]; ok {
		mirror := annotate(group+"expected-referenced-data", expected)
		if _, err := t.hub.update(ctx, "WorkloadDeployment", t.onHub, d.name(), mirror); err != nil {
			return err
		}
	}
	return t.policy(ctx, d.city)
}

// policy creates the policy of a city. It selects deployments by the city label, and all referenced data.
func (t tenancy) policy(ctx context.Context, code string) error {
	match := func(key, value string) map[string]any {
		return map[string]any{"matchLabels": map[string]string{key: value}}
	}
	ofCity, companions := match(city, code), match(group+"referenced-data", "true")
	spec := map[string]any{
		"resourceSelectors": []any{
			map[string]any{"apiVersion": compute, "kind": "WorkloadDeployment", "labelSelector": ofCity},
			map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "labelSelector": companions},
			map[string]any{"apiVersion": "v1", "kind": "Secret", "labelSelector": companions},
		},
		"placement": map[string]any{"clusterAffinity": map[string]any{"labelSelector": ofCity}},
	}
	_, err := t.hub.ensure(ctx, "PropagationPolicy", t.onHub, "city-"+strings.ToLower(code), nil, nil, map[string]any{"spec": spec})
	return err
}

// show copies the written-back instances from the hub to the project, as the projector does.
func (t tenancy) show(ctx context.Context, d deployment, instances []string) error {
	owner, err := t.project.get(ctx, "WorkloadDeployment", t.namespace, d.name())
	if err != nil {
		return err
	}
	for _, name := range instances {
		source, err := t.hub.get(ctx, "Instance", t.onHub, name)
		if err != nil {
			return err
		}
		fields := map[string]any{"spec": source.Object["spec"]}
		if _, err := t.project.ensure(ctx, "Instance", t.namespace, name, source.GetLabels(), reference(owner, false), fields); err != nil {
			return err
		}
		if _, err := t.project.report(ctx, "Instance", t.namespace, name, func(live *object) { live.Object["status"] = source.Object["status"] }); err != nil {
			return err
		}
	}
	return nil
}

// mirror copies the status of a deployment from the hub. It keeps the condition of the project.
func (t tenancy) mirror(ctx context.Context, d deployment) (status WorkloadDeploymentStatus, err error) {
	arrived := func(live *object) bool { return says(live, "Available", "True") }
	if d.city == "ord" && len(d.data) > 0 {
		arrived = func(live *object) bool { return says(live, "Available", "False") }
	}
	copied, err := t.hub.await(ctx, "WorkloadDeployment", t.onHub, d.name(), arrived)
	if err != nil {
		return status, err
	}
	if status, err = as[WorkloadDeploymentStatus](copied.Object["status"]); err != nil {
		return status, err
	}
	_, err = t.project.report(ctx, "WorkloadDeployment", t.namespace, d.name(), func(live *object) {
		said, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		own, _ := as[[]metav1.Condition](said)
		whole := status
		for _, each := range own {
			if each.Type == "ReferencedDataReady" {
				whole.Conditions = append(whole.Conditions[:len(whole.Conditions):len(whole.Conditions)], each)
			}
		}
		live.Object["status"] = plain(whole)
	})
	return status, err
}

// sum writes the status of a Workload from the statuses of its deployments.
func (t tenancy) sum(ctx context.Context, each workload, deployments []WorkloadDeploymentStatus) error {
	var total Counters
	for _, one := range deployments {
		total.Replicas += one.Replicas
		total.CurrentReplicas += one.CurrentReplicas
		total.DesiredReplicas += one.DesiredReplicas
		total.ReadyReplicas += one.ReadyReplicas
		total.UpdatedReplicas += one.UpdatedReplicas
	}
	_, err := t.project.report(ctx, "Workload", t.namespace, each.name, func(live *object) {
		text, now := "At least one placement is available", live.GetGeneration()
		live.Object["status"] = plain(WorkloadStatus{
			Counters: total, Deployments: int32(len(deployments)),
			Conditions: []metav1.Condition{condition("Available", "True", "AvailablePlacementFound", text, now)},
			Placements: []PlacementStatus{{Counters: total, Name: "p", Conditions: []metav1.Condition{
				condition("Available", "True", "AvailableDeploymentFound", text, now)}}},
		})
	})
	return err
}

func merged(all ...map[string]string) map[string]string {
	made := map[string]string{}
	for _, each := range all {
		maps.Copy(made, each)
	}
	return made
}
