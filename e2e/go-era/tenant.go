package main

import (
	"context"
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	. "compute-operator.local/go-era/v1alpha"
)

// workload is a Workload of a tenant.
type workload struct {
	name string
	spec WorkloadSpec
	// Tokens of the referenced data.
	data []string
	// Number of instances that an autoscaler set. Zero without autoscaling.
	scaled int32
}

const (
	configMap = "app-config"
	secret    = "app-secret"
)

func ptr[T any](value T) *T { return &value }

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func placement(replicas int32, cities ...string) []Placement {
	return []Placement{{
		Name: "p", CityCodes: cities,
		ScaleSettings: ScaleSettings{MinReplicas: replicas, InstanceManagementPolicy: "OrderedReady"},
	}}
}

// workloads returns three Workloads: containers with data in two cities, a virtual machine with disks, and an autoscaled one
// with the fields of later versions.
func workloads() []workload {
	network := NetworkReference{Name: "default"}
	size := Resources{InstanceType: "datumcloud/d1-standard-2"}
	web := InstanceTemplateSpec{
		Metadata: TemplateMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"example.com/note": "first"}},
		Spec: InstanceSpec{
			Runtime: Runtime{Resources: size, Sandbox: &Sandbox{Containers: []Container{{
				Name: "c", Image: "docker.io/library/nginx:1", Command: []string{"nginx"}, Args: []string{"-g", "daemon off;"},
				Env: []corev1.EnvVar{
					{Name: "MODE", Value: "first"},
					{Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
						LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: "k"}}},
				},
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}},
				Resources:         &ContainerResources{Limits: list("500m", "256Mi")},
				VolumeAttachments: []VolumeAttachment{{Name: "files", MountPath: ptr("/etc/app")}},
				Ports:             []Port{{Name: "http", Port: 8080, Protocol: ptr(corev1.ProtocolTCP)}},
			}}}},
			NetworkInterfaces: []NetworkInterface{{Network: network}},
			Volumes: []Volume{{Name: "files", ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}},
		},
	}
	vm := InstanceTemplateSpec{
		Metadata: TemplateMeta{Annotations: map[string]string{group + "ssh-keys": "ada:ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHh0"}},
		Spec: InstanceSpec{
			Runtime: Runtime{Resources: size, VirtualMachine: &VirtualMachine{
				VolumeAttachments: []VolumeAttachment{{Name: "boot"}}, Ports: []Port{{Name: "ssh", Port: 22}}}},
			NetworkInterfaces: []NetworkInterface{{Network: network}},
			Volumes: []Volume{{Name: "boot", Disk: &Disk{Template: &DiskTemplate{Spec: DiskSpec{
				Type: "pd-standard", Resources: &ContainerResources{Requests: corev1.ResourceList{
					corev1.ResourceStorage: resource.MustParse("30Gi")}},
				Populator: &Populator{Image: &ImagePopulator{Name: "datumcloud/ubuntu-2204-lts"}}}}}}},
		},
	}
	late := InstanceTemplateSpec{Spec: InstanceSpec{
		Runtime: Runtime{Class: "shared", Resources: size, Sandbox: &Sandbox{Containers: []Container{{
			Name: "c", Image: "docker.io/library/nginx:1",
			SecurityContext: &SecurityContext{
				Capabilities:             &Capabilities{Add: []string{"NET_BIND_SERVICE"}, Drop: []string{"ALL"}},
				AllowPrivilegeEscalation: ptr(false), SeccompProfile: &SeccompProfile{Type: "RuntimeDefault"}},
		}}}},
		NetworkInterfaces: []NetworkInterface{{Name: "eth0", Network: network, IPFamilies: []string{"IPv6"}}},
	}}
	scaling := placement(1, "ord")
	scaling[0].ScaleSettings.MaxReplicas = ptr[int32](3)
	scaling[0].ScaleSettings.Metrics = []Metric{{Resource: &ResourceMetric{Name: "cpu", Target: MetricTarget{AverageUtilization: ptr[int32](60)}}}}
	return []workload{
		{name: "web", spec: WorkloadSpec{Template: web, Placements: placement(2, "dfw", "ord")}, data: []string{"ConfigMap/" + configMap, "Secret/" + secret}},
		{name: "vm", spec: WorkloadSpec{Template: vm, Placements: placement(1, "dfw")}},
		{name: "late", spec: WorkloadSpec{Template: late, Placements: scaling}, scaled: 2},
	}
}

// asked writes the objects of the tenant: data and Workloads.
func asked(ctx context.Context, project plane, namespace string, all []workload) error {
	data := map[string]any{"data": map[string]string{"greeting": "hello"}}
	if _, err := project.ensure(ctx, "ConfigMap", namespace, configMap, nil, nil, data); err != nil {
		return err
	}
	if _, err := project.ensure(ctx, "Secret", namespace, secret, nil, nil, sealed()); err != nil {
		return err
	}
	for _, each := range all {
		if _, err := project.ensure(ctx, "Workload", namespace, each.name, nil, nil, map[string]any{"spec": each.spec}); err != nil {
			return err
		}
	}
	return nil
}

func sealed() map[string]any {
	return map[string]any{"type": "Opaque", "data": map[string]string{"k": base64.StdEncoding.EncodeToString([]byte("v"))}}
}
