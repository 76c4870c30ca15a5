// Package v1alpha has the Go types of compute.datumapis.com. Empty values are left out of JSON, and numbers never are. The
// hash of a template depends on the exact types.
package v1alpha

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateMeta is the part of a template's metadata that is kept.
type TemplateMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// InstanceTemplateSpec is the template of a Workload's instances.
type InstanceTemplateSpec struct {
	Metadata TemplateMeta `json:"metadata,omitempty"`
	Spec     InstanceSpec `json:"spec"`
}

// InstanceSpec is the desired state of one instance.
type InstanceSpec struct {
	Runtime           Runtime             `json:"runtime"`
	NetworkInterfaces []NetworkInterface  `json:"networkInterfaces,omitempty"`
	Volumes           []Volume            `json:"volumes,omitempty"`
	Location          *LocationReference  `json:"location,omitempty"`
	Controller        *InstanceController `json:"controller,omitempty"`
}

// Runtime is a sandbox of containers or a virtual machine.
type Runtime struct {
	Class          string          `json:"class,omitempty"`
	Resources      Resources       `json:"resources"`
	Sandbox        *Sandbox        `json:"sandbox,omitempty"`
	VirtualMachine *VirtualMachine `json:"virtualMachine,omitempty"`
}

// Resources are the size of an instance.
type Resources struct {
	InstanceType string              `json:"instanceType"`
	Requests     corev1.ResourceList `json:"requests,omitempty"`
}

// Sandbox runs containers.
type Sandbox struct {
	Containers       []Container                   `json:"containers,omitempty"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
}

// Container is a container of a sandbox.
type Container struct {
	Name              string                 `json:"name"`
	Image             string                 `json:"image"`
	Command           []string               `json:"command,omitempty"`
	Args              []string               `json:"args,omitempty"`
	Env               []corev1.EnvVar        `json:"env,omitempty"`
	EnvFrom           []corev1.EnvFromSource `json:"envFrom,omitempty"`
	Resources         *ContainerResources    `json:"resources,omitempty"`
	VolumeAttachments []VolumeAttachment     `json:"volumeAttachments,omitempty"`
	Ports             []Port                 `json:"ports,omitempty"`
	SecurityContext   *SecurityContext       `json:"securityContext,omitempty"`
}

// ContainerResources are the limits and requests of one container.
type ContainerResources struct {
	Limits   corev1.ResourceList `json:"limits,omitempty"`
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// SecurityContext is a field of later versions.
type SecurityContext struct {
	Capabilities             *Capabilities   `json:"capabilities,omitempty"`
	AllowPrivilegeEscalation *bool           `json:"allowPrivilegeEscalation,omitempty"`
	SeccompProfile           *SeccompProfile `json:"seccompProfile,omitempty"`
}

// Capabilities are the kernel capabilities of a container.
type Capabilities struct {
	Add  []string `json:"add,omitempty"`
	Drop []string `json:"drop,omitempty"`
}

// SeccompProfile names a filter of system calls.
type SeccompProfile struct {
	Type string `json:"type"`
}

// VirtualMachine boots from its first volume.
type VirtualMachine struct {
	VolumeAttachments []VolumeAttachment `json:"volumeAttachments,omitempty"`
	Ports             []Port             `json:"ports,omitempty"`
}

// VolumeAttachment mounts a volume.
type VolumeAttachment struct {
	Name      string  `json:"name"`
	MountPath *string `json:"mountPath,omitempty"`
}

// Port is a named port.
type Port struct {
	Name     string           `json:"name"`
	Port     int32            `json:"port"`
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
}

// NetworkInterface attaches an instance to a network. Name and IPFamilies are fields of later versions.
type NetworkInterface struct {
	Name       string           `json:"name,omitempty"`
	Network    NetworkReference `json:"network"`
	IPFamilies []string         `json:"ipFamilies,omitempty"`
}

// NetworkReference names a network.
type NetworkReference struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// LocationReference names a Location. Locations have no namespace.
type LocationReference struct {
	Name string `json:"name"`
}

// Volume has one source.
type Volume struct {
	Name      string                        `json:"name"`
	Disk      *Disk                         `json:"disk,omitempty"`
	ConfigMap *corev1.ConfigMapVolumeSource `json:"configMap,omitempty"`
	Secret    *corev1.SecretVolumeSource    `json:"secret,omitempty"`
}

// Disk is a disk that is created for an instance.
type Disk struct {
	DeviceName *string       `json:"deviceName,omitempty"`
	Template   *DiskTemplate `json:"template,omitempty"`
}

// DiskTemplate is the template of a disk.
type DiskTemplate struct {
	Metadata TemplateMeta `json:"metadata,omitempty"`
	Spec     DiskSpec     `json:"spec"`
}

// DiskSpec is the desired state of a disk.
type DiskSpec struct {
	Type      string              `json:"type"`
	Resources *ContainerResources `json:"resources,omitempty"`
	Populator *Populator          `json:"populator,omitempty"`
}

// Populator is the source of a disk's content.
type Populator struct {
	Image *ImagePopulator `json:"image,omitempty"`
}

// ImagePopulator fills a disk from an image.
type ImagePopulator struct {
	Name string `json:"name"`
}

// InstanceController is the state of an instance in its controllers.
type InstanceController struct {
	TemplateHash    string `json:"templateHash"`
	SchedulingGates []Gate `json:"schedulingGates,omitempty"`
}

// Gate blocks the start of an instance.
type Gate struct {
	Name string `json:"name"`
}

// ScaleSettings are the bounds of the number of instances.
type ScaleSettings struct {
	MinReplicas              int32    `json:"minReplicas"`
	MaxReplicas              *int32   `json:"maxReplicas,omitempty"`
	Metrics                  []Metric `json:"metrics,omitempty"`
	InstanceManagementPolicy string   `json:"instanceManagementPolicy,omitempty"`
}

// Metric is a metric for autoscaling.
type Metric struct {
	Resource *ResourceMetric `json:"resource,omitempty"`
}

// ResourceMetric is the usage of a resource.
type ResourceMetric struct {
	Name   string       `json:"name"`
	Target MetricTarget `json:"target"`
}

// MetricTarget is the target value of a metric.
type MetricTarget struct {
	AverageUtilization *int32 `json:"averageUtilization,omitempty"`
}

// Counters are numbers of instances. Zero values are kept in JSON.
type Counters struct {
	Replicas        int32 `json:"replicas"`
	CurrentReplicas int32 `json:"currentReplicas"`
	DesiredReplicas int32 `json:"desiredReplicas"`
	ReadyReplicas   int32 `json:"readyReplicas"`
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

// Placement lists the cities of a Workload.
type Placement struct {
	Name          string        `json:"name"`
	CityCodes     []string      `json:"cityCodes"`
	ScaleSettings ScaleSettings `json:"scaleSettings"`
}

// WorkloadSpec is the spec of a Workload.
type WorkloadSpec struct {
	Template   InstanceTemplateSpec `json:"template"`
	Placements []Placement          `json:"placements"`
}

// WorkloadStatus sums up the deployments of a Workload.
type WorkloadStatus struct {
	Counters    `json:",inline"`
	Deployments int32              `json:"deployments"`
	Conditions  []metav1.Condition `json:"conditions,omitempty"`
	Placements  []PlacementStatus  `json:"placements,omitempty"`
}

// PlacementStatus sums up the deployments of a placement.
type PlacementStatus struct {
	Counters   `json:",inline"`
	Name       string             `json:"name"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WorkloadReference names the Workload of a deployment.
type WorkloadReference struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// WorkloadDeploymentSpec is the spec of a Workload in one city.
type WorkloadDeploymentSpec struct {
	WorkloadRef   WorkloadReference    `json:"workloadRef"`
	PlacementName string               `json:"placementName"`
	CityCode      string               `json:"cityCode"`
	Template      InstanceTemplateSpec `json:"template"`
	ScaleSettings ScaleSettings        `json:"scaleSettings"`
	Replicas      *int32               `json:"replicas,omitempty"`
}

// WorkloadDeploymentStatus is the status that a cell reports.
type WorkloadDeploymentStatus struct {
	Counters           `json:",inline"`
	Location           *LocationReference `json:"location,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// InstanceStatus is the status that provider and controllers report.
type InstanceStatus struct {
	Conditions        []metav1.Condition        `json:"conditions,omitempty"`
	NetworkInterfaces []NetworkInterfaceStatus  `json:"networkInterfaces,omitempty"`
	Controller        *InstanceControllerStatus `json:"controller,omitempty"`
}

// NetworkInterfaceStatus has the addresses of an interface.
type NetworkInterfaceStatus struct {
	Assignments Assignments `json:"assignments,omitempty"`
}

// Assignments are the addresses of an interface.
type Assignments struct {
	NetworkIP  *string `json:"networkIP,omitempty"`
	ExternalIP *string `json:"externalIP,omitempty"`
}

// InstanceControllerStatus has the hash of the last template that the provider observed.
type InstanceControllerStatus struct {
	ObservedTemplateHash string `json:"observedTemplateHash"`
}
