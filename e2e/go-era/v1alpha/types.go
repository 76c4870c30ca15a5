// Package v1alpha has the kinds of compute.datumapis.com as Go sees them: what is empty is left out, what is a number
// never is, and the hash of a template depends on these very types.
package v1alpha

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TemplateMeta is the metadata of a template, of which only this is kept.
type TemplateMeta struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// InstanceTemplateSpec is what each instance of a Workload is made from.
type InstanceTemplateSpec struct {
	Metadata TemplateMeta `json:"metadata,omitempty"`
	Spec     InstanceSpec `json:"spec"`
}

// InstanceSpec is what one instance is to be.
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

// Container is one of them.
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

// ContainerResources are the share of one container.
type ContainerResources struct {
	Limits   corev1.ResourceList `json:"limits,omitempty"`
	Requests corev1.ResourceList `json:"requests,omitempty"`
}

// SecurityContext came late.
type SecurityContext struct {
	Capabilities             *Capabilities   `json:"capabilities,omitempty"`
	AllowPrivilegeEscalation *bool           `json:"allowPrivilegeEscalation,omitempty"`
	SeccompProfile           *SeccompProfile `json:"seccompProfile,omitempty"`
}

// Capabilities are what the kernel lets a container do.
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

// VolumeAttachment says where a volume is seen.
type VolumeAttachment struct {
	Name      string  `json:"name"`
	MountPath *string `json:"mountPath,omitempty"`
}

// Port has a name that others refer to.
type Port struct {
	Name     string           `json:"name"`
	Port     int32            `json:"port"`
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
}

// NetworkInterface attaches an instance to a network; name and families came late.
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

// LocationReference names a place, since places belong to no namespace.
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

// Disk is made for the instance.
type Disk struct {
	DeviceName *string       `json:"deviceName,omitempty"`
	Template   *DiskTemplate `json:"template,omitempty"`
}

// DiskTemplate is what a disk is made from.
type DiskTemplate struct {
	Metadata TemplateMeta `json:"metadata,omitempty"`
	Spec     DiskSpec     `json:"spec"`
}

// DiskSpec is what a disk is to be.
type DiskSpec struct {
	Type      string              `json:"type"`
	Resources *ContainerResources `json:"resources,omitempty"`
	Populator *Populator          `json:"populator,omitempty"`
}

// Populator fills a disk.
type Populator struct {
	Image *ImagePopulator `json:"image,omitempty"`
}

// ImagePopulator fills it from an image.
type ImagePopulator struct {
	Name string `json:"name"`
}

// InstanceController is how far the controllers have come with an instance.
type InstanceController struct {
	TemplateHash    string `json:"templateHash"`
	SchedulingGates []Gate `json:"schedulingGates,omitempty"`
}

// Gate keeps an instance from being started.
type Gate struct {
	Name string `json:"name"`
}

// ScaleSettings say how many instances there are to be.
type ScaleSettings struct {
	MinReplicas              int32    `json:"minReplicas"`
	MaxReplicas              *int32   `json:"maxReplicas,omitempty"`
	Metrics                  []Metric `json:"metrics,omitempty"`
	InstanceManagementPolicy string   `json:"instanceManagementPolicy,omitempty"`
}

// Metric is what autoscaling goes by.
type Metric struct {
	Resource *ResourceMetric `json:"resource,omitempty"`
}

// ResourceMetric is the use of a resource.
type ResourceMetric struct {
	Name   string       `json:"name"`
	Target MetricTarget `json:"target"`
}

// MetricTarget is how much of it is wanted.
type MetricTarget struct {
	AverageUtilization *int32 `json:"averageUtilization,omitempty"`
}

// Counters are numbers of instances. None is left out for being zero.
type Counters struct {
	Replicas        int32 `json:"replicas"`
	CurrentReplicas int32 `json:"currentReplicas"`
	DesiredReplicas int32 `json:"desiredReplicas"`
	ReadyReplicas   int32 `json:"readyReplicas"`
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

// Placement is where instances of a Workload run.
type Placement struct {
	Name          string        `json:"name"`
	CityCodes     []string      `json:"cityCodes"`
	ScaleSettings ScaleSettings `json:"scaleSettings"`
}

// WorkloadSpec is what a tenant writes.
type WorkloadSpec struct {
	Template   InstanceTemplateSpec `json:"template"`
	Placements []Placement          `json:"placements"`
}

// WorkloadStatus is the sum of its deployments.
type WorkloadStatus struct {
	Counters    `json:",inline"`
	Deployments int32              `json:"deployments"`
	Conditions  []metav1.Condition `json:"conditions,omitempty"`
	Placements  []PlacementStatus  `json:"placements,omitempty"`
}

// PlacementStatus is the sum of a placement's deployments.
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

// WorkloadDeploymentSpec is a Workload in one city.
type WorkloadDeploymentSpec struct {
	WorkloadRef   WorkloadReference    `json:"workloadRef"`
	PlacementName string               `json:"placementName"`
	CityCode      string               `json:"cityCode"`
	Template      InstanceTemplateSpec `json:"template"`
	ScaleSettings ScaleSettings        `json:"scaleSettings"`
	Replicas      *int32               `json:"replicas,omitempty"`
}

// WorkloadDeploymentStatus is what its cell says of it.
type WorkloadDeploymentStatus struct {
	Counters           `json:",inline"`
	Location           *LocationReference `json:"location,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// InstanceStatus is what provider and controllers say of an instance.
type InstanceStatus struct {
	Conditions        []metav1.Condition        `json:"conditions,omitempty"`
	NetworkInterfaces []NetworkInterfaceStatus  `json:"networkInterfaces,omitempty"`
	Controller        *InstanceControllerStatus `json:"controller,omitempty"`
}

// NetworkInterfaceStatus says how an interface is reached.
type NetworkInterfaceStatus struct {
	Assignments Assignments `json:"assignments,omitempty"`
}

// Assignments are addresses.
type Assignments struct {
	NetworkIP  *string `json:"networkIP,omitempty"`
	ExternalIP *string `json:"externalIP,omitempty"`
}

// InstanceControllerStatus is the template that the provider has seen.
type InstanceControllerStatus struct {
	ObservedTemplateHash string `json:"observedTemplateHash"`
}
