package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/apimachinery/pkg/util/rand"

	. "compute-operator.local/go-era/v1alpha"
)

// cell is the control plane of one cell, with a second client that writes as the autoscaler.
type cell struct {
	plane
	scaler plane
}

// hash returns the Go operator's template hash. It depends on the format in which Go prints a template.
func hash(template InstanceTemplateSpec) string {
	sum := fnv.New32a()
	fmt.Fprintf(sum, "%v", dump.ForHash(template))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(sum.Sum32()), 10))
}

// run acts as the cell's two controllers for one deployment. It writes networks, instances, claims, statuses and the copies
// on the hub. It returns the names of the instances.
func (t tenancy) run(ctx context.Context, d deployment) ([]string, error) {
	here := t.cells[d.city]
	if _, err := here.await(ctx, "WorkloadDeployment", t.onHub, d.name(), exists); err != nil {
		return nil, err
	}
	if err := here.finalizer(ctx, "WorkloadDeployment", t.onHub, d.name(), group+"workload-controller"); err != nil {
		return nil, err
	}
	replicas := *d.spec.Replicas
	if d.scaled > 0 {
		replicas = d.scaled
		_, err := here.scaler.update(ctx, "WorkloadDeployment", t.onHub, d.name(), func(live *object) {
			_ = unstructured.SetNestedField(live.Object, int64(replicas), "spec", "replicas")
		})
		if err != nil {
			return nil, err
		}
	}
	live, err := here.get(ctx, "WorkloadDeployment", t.onHub, d.name())
	if err != nil {
		return nil, err
	}
	if d.spec, err = as[WorkloadDeploymentSpec](live.Object["spec"]); err != nil {
		return nil, err
	}
	location := LocationReference{Name: d.city + "-1"}
	if err := t.networks(ctx, here, live, d, location); err != nil {
		return nil, err
	}
	var names []string
	waits := false
	for ordinal := int32(0); ordinal < replicas && !waits; ordinal++ {
		name := fmt.Sprintf("%s-%d", d.name(), ordinal)
		if waits, err = t.instance(ctx, here, live, d, ordinal, location); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, t.count(ctx, here, d, replicas, int32(len(names)), waits, location)
}

func (t tenancy) networks(ctx context.Context, here cell, owner *object, d deployment, location LocationReference) error {
	network := d.spec.Template.Spec.NetworkInterfaces[0].Network
	spec := map[string]any{"network": network, "location": location}
	name := d.name() + "-net-0"
	if _, err := here.ensure(ctx, "NetworkBinding", t.onHub, name, nil, reference(owner, true), map[string]any{"spec": spec}); err != nil {
		return err
	}
	binding, err := here.await(ctx, "NetworkBinding", t.onHub, name, func(live *object) bool { return says(live, "Ready", "True") })
	if err != nil {
		return err
	}
	context, _, _ := unstructured.NestedString(binding.Object, "status", "networkContextRef", "name")
	ofContext, err := here.await(ctx, "NetworkContext", t.onHub, context, func(live *object) bool { return says(live, "Ready", "True") })
	if err != nil {
		return err
	}
	spec = map[string]any{"subnetClass": "private", "ipFamily": "IPv4", "networkContext": map[string]any{"name": context}, "location": location}
	claim := context + "-0"
	if _, err := here.ensure(ctx, "SubnetClaim", t.onHub, claim, nil, reference(ofContext, false), map[string]any{"spec": spec}); err != nil {
		return err
	}
	_, err = here.await(ctx, "SubnetClaim", t.onHub, claim, func(live *object) bool { return says(live, "Ready", "True") })
	return err
}

// instance creates an instance and waits until it runs. It returns true if the instance waits for data that never arrives.
func (t tenancy) instance(ctx context.Context, here cell, owner *object, d deployment, ordinal int32, location LocationReference) (waits bool, err error) {
	name, spec := fmt.Sprintf("%s-%d", d.name(), ordinal), d.spec.Template.Spec
	gates := []Gate{{Name: "Network"}, {Name: "Quota"}}
	if len(d.data) > 0 {
		gates = append(gates, Gate{Name: "ReferencedData"})
	}
	spec.Location, spec.Controller = &location, &InstanceController{TemplateHash: hash(d.spec.Template), SchedulingGates: gates}
	labels := merged(d.spec.Template.Metadata.Labels, map[string]string{
		group + "workload-uid": d.spec.WorkloadRef.UID, group + "workload-deployment-uid": string(owner.GetUID()),
		group + "instance-index": strconv.Itoa(int(ordinal)), group + "workload-deployment-name": d.name(),
		group + "city-code": d.spec.CityCode, group + "workload-name": d.spec.WorkloadRef.Name, group + "placement-name": d.spec.PlacementName,
	})
	made, err := here.ensure(ctx, "Instance", t.onHub, name, labels, reference(owner, true), map[string]any{"spec": spec})
	if err != nil {
		return false, err
	}
	if annotations := d.spec.Template.Metadata.Annotations; len(annotations) > 0 {
		_, err = here.update(ctx, "Instance", t.onHub, name, func(live *object) { live.SetAnnotations(merged(live.GetAnnotations(), annotations)) })
	}
	for _, finalizer := range []string{group + "instance-controller", "quota.compute.datumapis.com/claim-cleanup"} {
		if err == nil {
			err = here.finalizer(ctx, "Instance", t.onHub, name, finalizer)
		}
	}
	if err == nil {
		err = t.claim(ctx, d, name)
	}
	if err != nil {
		return false, err
	}
	if _, err = here.update(ctx, "Instance", t.onHub, name, without("Network")); err != nil {
		return false, err
	}
	// Only the city with the alphabetically first policy gets the data. The others wait (see the facts of the test).
	waits = len(d.data) > 0 && d.city != "dfw"
	generation := made.GetGeneration() + 1
	said := []metav1.Condition{condition("QuotaGranted", "True", "QuotaAvailable", "Quota is available", generation)}
	open := []string{"Quota"}
	if waits {
		text := "waiting for " + strings.Join(d.data, ", ")
		said = append(said, condition("ReferencedDataReady", "False", "AwaitingPropagation", text, generation),
			condition("Ready", "False", "AwaitingPropagation", text, generation))
	} else if len(d.data) > 0 {
		for _, token := range d.data {
			kind, data, _ := strings.Cut(token, "/")
			if _, err = here.await(ctx, kind, t.onHub, data, exists); err != nil {
				return false, err
			}
		}
		said = append(said, condition("ReferencedDataReady", "True", "Ready", "", generation))
		open = append(open, "ReferencedData")
	}
	if _, err = here.report(ctx, "Instance", t.onHub, name, saying(said)); err != nil {
		return false, err
	}
	if err = here.ungate(ctx, t.onHub, name, open); err != nil {
		return false, err
	}
	if !waits {
		runs := func(live *object) bool { return says(live, "Programmed", "True") && says(live, "Available", "True") }
		if made, err = here.await(ctx, "Instance", t.onHub, name, runs); err == nil {
			ready := condition("Ready", "True", "Available", "Instance is ready", made.GetGeneration())
			_, err = here.report(ctx, "Instance", t.onHub, name, saying([]metav1.Condition{ready}))
		}
	}
	if err != nil {
		return false, err
	}
	return waits, t.writeBack(ctx, here, d, name)
}

// claim creates the quota claim of an instance in the project and waits until it is granted.
func (t tenancy) claim(ctx context.Context, d deployment, instance string) error {
	vcpus, memory := int64(1000), int64(2048)
	if box := d.spec.Template.Spec.Runtime.Sandbox; box != nil && box.Containers[0].Resources != nil {
		limits := box.Containers[0].Resources.Limits
		vcpus, memory = limits.Cpu().MilliValue(), limits.Memory().Value()>>20
	}
	request := func(type_ string, amount int64) map[string]any {
		return map[string]any{"resourceType": group + type_, "amount": amount}
	}
	project := map[string]any{"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "single"}
	spec := map[string]any{
		"consumerRef": project, "resourceRef": project,
		"requests": []any{request("instances", 1), request("vcpus", vcpus), request("memory", memory)},
	}
	labels := map[string]string{group + "source-cluster": "cell-" + d.city, group + "instance-namespace": t.onHub}
	name := "instance-" + instance
	if _, err := t.project.ensure(ctx, "ResourceClaim", t.namespace, name, labels, nil, map[string]any{"spec": spec}); err != nil {
		return err
	}
	_, err := t.project.await(ctx, "ResourceClaim", t.namespace, name, func(live *object) bool { return says(live, "Granted", "True") })
	return err
}

// without returns a change that removes gates.
func without(gates ...string) func(*object) {
	return func(live *object) {
		all, _, _ := unstructured.NestedSlice(live.Object, "spec", "controller", "schedulingGates")
		left := slices.DeleteFunc(all, func(entry any) bool {
			name, _, _ := unstructured.NestedString(entry.(map[string]any), "name")
			return slices.Contains(gates, name)
		})
		_ = unstructured.SetNestedSlice(live.Object, left, "spec", "controller", "schedulingGates")
	}
}

// ungate removes gates by one merge patch that has the whole remaining list.
func (c cell) ungate(ctx context.Context, namespace, name string, gates []string) error {
	live, err := c.get(ctx, "Instance", namespace, name)
	if err != nil {
		return err
	}
	without(gates...)(live)
	left, _, _ := unstructured.NestedSlice(live.Object, "spec", "controller", "schedulingGates")
	patch := map[string]any{"spec": map[string]any{"controller": map[string]any{"schedulingGates": left}}}
	if len(left) == 0 {
		patch = map[string]any{"spec": map[string]any{"controller": map[string]any{"schedulingGates": nil}}}
	}
	text, err := json.Marshal(patch)
	if err == nil {
		_, err = c.of("Instance", namespace).Patch(ctx, name, types.MergePatchType, text, metav1.PatchOptions{})
	}
	return err
}

// saying returns a change that sets conditions in a status. They replace conditions of the same type.
func saying(said []metav1.Condition) func(*object) {
	return func(live *object) {
		status, _ := as[map[string]any](live.Object["status"])
		old, _ := as[[]metav1.Condition](status["conditions"])
		isNew := func(one metav1.Condition) bool {
			return slices.ContainsFunc(said, func(other metav1.Condition) bool { return other.Type == one.Type })
		}
		if status == nil {
			status = map[string]any{}
		}
		status["conditions"] = plain(append(slices.DeleteFunc(old, isNew), said...))
		live.Object["status"] = status
	}
}

// writeBack copies an instance to the hub. The deployment's copy is its owner there.
func (t tenancy) writeBack(ctx context.Context, here cell, d deployment, name string) error {
	source, err := here.get(ctx, "Instance", t.onHub, name)
	if err != nil {
		return err
	}
	owner, err := t.hub.get(ctx, "WorkloadDeployment", t.onHub, d.name())
	if err != nil {
		return err
	}
	labels := merged(source.GetLabels(), map[string]string{upstreamCluster: "cluster-single", upstreamNamespace: t.namespace})
	fields := map[string]any{"spec": source.Object["spec"]}
	if _, err := t.hub.ensure(ctx, "Instance", t.onHub, name, labels, reference(owner, true), fields); err != nil {
		return err
	}
	_, err = t.hub.report(ctx, "Instance", t.onHub, name, func(live *object) { live.Object["status"] = source.Object["status"] })
	return err
}

// count writes the status of a deployment: the number of instances, and their readiness.
func (t tenancy) count(ctx context.Context, here cell, d deployment, desired, made int32, waits bool, location LocationReference) error {
	_, err := here.report(ctx, "WorkloadDeployment", t.onHub, d.name(), func(live *object) {
		now, ready := live.GetGeneration(), made
		text := fmt.Sprintf("%d/%d instances are ready", made, desired)
		said := []metav1.Condition{condition("Available", "True", "StableInstanceFound", text, now),
			condition("ReplicasReady", "True", "ReplicasAvailable", fmt.Sprintf("%d/%d replicas available", made, desired), now)}
		if waits {
			ready = 0
			said = []metav1.Condition{condition("Available", "False", "ReferencedDataNotReady", "waiting for referenced data", now),
				condition("ReplicasReady", "False", "AwaitingPropagation", "waiting for referenced data companions", now)}
		}
		live.Object["status"] = plain(WorkloadDeploymentStatus{
			Counters: Counters{Replicas: made, CurrentReplicas: ready, DesiredReplicas: desired, ReadyReplicas: ready, UpdatedReplicas: made},
			Location: &location, ObservedGeneration: now, Conditions: said,
		})
	})
	return err
}
