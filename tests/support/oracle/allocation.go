package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

type allocatableRequest struct {
	request
	Nodes       []corev1.Node               `json:"nodes"`
	Slices      []resourceapi.ResourceSlice `json:"slices"`
	DeviceClass resourceapi.DeviceClass     `json:"deviceClass"`
	Count       int64                       `json:"count"`
}

type allocatableVerdict struct {
	Allocatable bool `json:"allocatable"`
	// Failure is what the selector of the class fails with.
	Failure string `json:"failure"`
}

// allocation has the features of Kubernetes 1.37 that decide whether a device can be allocated. An API
// server without one of them stores none of its fields.
var allocation = structured.Features{
	AdminAccess:            true,
	CompatibilityGroups:    true,
	PrioritizedList:        true,
	PartitionableDevices:   true,
	DeviceTaints:           true,
	DeviceBindingAndStatus: true,
	ConsumableCapacity:     true,
}

type classes []*resourceapi.DeviceClass

func (c classes) List() ([]*resourceapi.DeviceClass, error) { return c, nil }

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	for _, class := range c {
		if class.Name == name {
			return class, nil
		}
	}
	return nil, fmt.Errorf("no DeviceClass is called %q", name)
}

// allocatable asks of each node whether kube-scheduler's allocator finds so many free devices of the
// class for a claim, as it does for an extended resource that the class provides.
func allocatable(line []byte) (any, error) {
	var asked allocatableRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	slices := make([]*resourceapi.ResourceSlice, len(asked.Slices))
	for i := range asked.Slices {
		slices[i] = &asked.Slices[i]
	}
	exactly := &resourceapi.ExactDeviceRequest{
		DeviceClassName: asked.DeviceClass.Name,
		AllocationMode:  resourceapi.DeviceAllocationModeExactCount,
		Count:           asked.Count,
	}
	claim := &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "claim"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "request", Exactly: exactly}},
		}},
	}
	ctx := context.Background()
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	allocator, err := structured.NewAllocator(
		ctx, allocation, state, classes{&asked.DeviceClass}, slices, cel.NewCache(10, cel.Features{}))
	if err != nil {
		return nil, err
	}
	verdicts := make([]allocatableVerdict, len(asked.Nodes))
	for i := range asked.Nodes {
		results, err := allocator.Allocate(ctx, &asked.Nodes[i], []*resourceapi.ResourceClaim{claim})
		verdicts[i].Allocatable = len(results) > 0
		if err != nil {
			verdicts[i].Failure = err.Error()
		}
	}
	return verdicts, nil
}
