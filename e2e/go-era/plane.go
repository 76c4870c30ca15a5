package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	group   = "compute.datumapis.com/"
	compute = "compute.datumapis.com/v1alpha"
)

// kinds has the group, version and resource of each kind.
var kinds = map[string]schema.GroupVersionResource{
	"Workload":           {Group: "compute.datumapis.com", Version: "v1alpha", Resource: "workloads"},
	"WorkloadDeployment": {Group: "compute.datumapis.com", Version: "v1alpha", Resource: "workloaddeployments"},
	"Instance":           {Group: "compute.datumapis.com", Version: "v1alpha", Resource: "instances"},
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"ConfigMap":          {Version: "v1", Resource: "configmaps"},
	"Secret":             {Version: "v1", Resource: "secrets"},
	"PropagationPolicy":  {Group: "policy.karmada.io", Version: "v1alpha1", Resource: "propagationpolicies"},
	"NetworkBinding":     {Group: "networking.datumapis.com", Version: "v1alpha", Resource: "networkbindings"},
	"NetworkContext":     {Group: "networking.datumapis.com", Version: "v1alpha", Resource: "networkcontexts"},
	"SubnetClaim":        {Group: "networking.datumapis.com", Version: "v1alpha", Resource: "subnetclaims"},
	"Subnet":             {Group: "networking.datumapis.com", Version: "v1alpha", Resource: "subnets"},
	"Location":           {Group: "networking.datumapis.com", Version: "v1alpha", Resource: "locations"},
	"ResourceClaim":      {Group: "quota.miloapis.com", Version: "v1alpha1", Resource: "resourceclaims"},
}

type object = unstructured.Unstructured

// plane is one control plane with a client.
type plane struct {
	name   string
	client dynamic.Interface
}

// connect opens a control plane with a user agent. An empty agent means that of this program. The API server uses the part
// before the slash as the field manager of every write that does not set one.
func connect(name, kubeconfig, agent string) (plane, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return plane{}, err
	}
	config.QPS, config.Burst = 500, 500
	config.UserAgent = agent
	client, err := dynamic.NewForConfig(config)
	return plane{name, client}, err
}

func (p plane) of(kind, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return p.client.Resource(kinds[kind])
	}
	return p.client.Resource(kinds[kind]).Namespace(namespace)
}

func (p plane) get(ctx context.Context, kind, namespace, name string) (*object, error) {
	return p.of(kind, namespace).Get(ctx, name, metav1.GetOptions{})
}

// ensure creates an object unless it exists.
func (p plane) ensure(ctx context.Context, kind, namespace, name string, labels map[string]string, owners []metav1.OwnerReference, fields map[string]any) (*object, error) {
	made := &object{Object: map[string]any{}}
	for key, value := range fields {
		made.Object[key] = plain(value)
	}
	version := schema.GroupVersion{Group: kinds[kind].Group, Version: kinds[kind].Version}
	made.SetAPIVersion(version.String())
	made.SetKind(kind)
	made.SetNamespace(namespace)
	made.SetName(name)
	made.SetLabels(labels)
	made.SetOwnerReferences(owners)
	live, err := p.of(kind, namespace).Create(ctx, made, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return p.get(ctx, kind, namespace, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: create %s %s/%s: %w", p.name, kind, namespace, name, err)
	}
	return live, nil
}

// update reads an object, changes it and writes it back in full. It retries after a conflict.
func (p plane) update(ctx context.Context, kind, namespace, name string, change func(*object)) (*object, error) {
	return p.write(ctx, kind, namespace, name, change, "")
}

// report is update for the status.
func (p plane) report(ctx context.Context, kind, namespace, name string, change func(*object)) (*object, error) {
	return p.write(ctx, kind, namespace, name, change, "status")
}

func (p plane) write(ctx context.Context, kind, namespace, name string, change func(*object), subresource string) (*object, error) {
	for {
		live, err := p.get(ctx, kind, namespace, name)
		if err == nil {
			change(live)
			if subresource == "" {
				live, err = p.of(kind, namespace).Update(ctx, live, metav1.UpdateOptions{})
			} else {
				live, err = p.of(kind, namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{})
			}
		}
		if !apierrors.IsConflict(err) {
			if err != nil {
				err = fmt.Errorf("%s: update %s %s/%s: %w", p.name, kind, namespace, name, err)
			}
			return live, err
		}
	}
}

// finalizer adds a finalizer in a separate write.
func (p plane) finalizer(ctx context.Context, kind, namespace, name, finalizer string) error {
	_, err := p.update(ctx, kind, namespace, name, func(live *object) {
		live.SetFinalizers(append(live.GetFinalizers(), finalizer))
	})
	return err
}

// annotate returns a change that sets one annotation and keeps the others.
func annotate(key, value string) func(*object) {
	return func(live *object) {
		annotations := live.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[key] = value
		live.SetAnnotations(annotations)
	}
}

// await reads an object until wanted returns true.
func (p plane) await(ctx context.Context, kind, namespace, name string, wanted func(*object) bool) (*object, error) {
	for {
		live, err := p.get(ctx, kind, namespace, name)
		if err == nil && wanted(live) {
			return live, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			said, _ := json.Marshal(live)
			return nil, fmt.Errorf("%s: %s %s/%s: %w: %s", p.name, kind, namespace, name, ctx.Err(), said)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func exists(*object) bool { return true }

// says returns true if a condition has this status.
func says(live *object, condition, status string) bool {
	conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
	for _, entry := range conditions {
		fields, _ := entry.(map[string]any)
		if fields["type"] == condition && fields["status"] == status {
			return true
		}
	}
	return false
}

// plain returns a value in the types of decoded JSON.
func plain(value any) any {
	text, err := json.Marshal(value)
	var made any
	if err = errors.Join(err, json.Unmarshal(text, &made)); err != nil {
		panic(err)
	}
	return made
}

// as decodes a part of an object into its type.
func as[T any](part any) (value T, err error) {
	text, err := json.Marshal(part)
	if err == nil {
		err = json.Unmarshal(text, &value)
	}
	return value, err
}

func reference(owner *object, controller bool) []metav1.OwnerReference {
	made := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
	if controller {
		made.Controller, made.BlockOwnerDeletion = &controller, &controller
	}
	return []metav1.OwnerReference{made}
}

func condition(type_, status, reason, message string, generation int64) metav1.Condition {
	return metav1.Condition{
		Type: type_, Status: metav1.ConditionStatus(status), Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second)),
	}
}
