package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	gpuLabel       = "nvidia.com/gpu.present"
	gpuTaint       = "nvidia.com/gpu"
	visibleDevices = "NVIDIA_VISIBLE_DEVICES"
	runAsUser      = int64(65532)
	userAnnotation = "gpufence.dev/run-as-user"
)

func isGPU(name corev1.ResourceName) bool {
	return name == "nvidia.com/gpu" || name == "nvidia.com/gpu.shared" ||
		strings.HasPrefix(string(name), "nvidia.com/mig-")
}

func hasGPU(container *corev1.Container) bool {
	for _, side := range []corev1.ResourceList{
		container.Resources.Limits, container.Resources.Requests,
	} {
		for name, quantity := range side {
			if isGPU(name) && !quantity.IsZero() {
				return true
			}
		}
	}
	return false
}

// containers returns init containers and containers; what is changed in them is changed in the Pod.
func containers(pod *corev1.Pod) []*corev1.Container {
	all := make([]*corev1.Container, 0, len(pod.Spec.InitContainers)+len(pod.Spec.Containers))
	for i := range pod.Spec.InitContainers {
		all = append(all, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		all = append(all, &pod.Spec.Containers[i])
	}
	return all
}

func requestsGPU(pod *corev1.Pod) bool {
	return slices.ContainsFunc(containers(pod), hasGPU)
}

func mutate(pod *corev1.Pod) {
	tolerate(pod)
	requireNodes(pod)
	harden(pod)
	for _, container := range containers(pod) {
		fillDevices(container)
		hardenContainer(container)
		hideDevices(container)
	}
}

func tolerate(pod *corev1.Pod) {
	taint := corev1.Taint{Key: gpuTaint, Effect: corev1.TaintEffectNoSchedule}
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if (t.Key == "" || t.Key == taint.Key) && t.Operator == corev1.TolerationOpExists &&
			(t.Effect == "" || t.Effect == taint.Effect) {
			return
		}
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: gpuTaint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
	})
}

func requireNodes(pod *corev1.Pod) {
	if pod.Spec.NodeSelector[gpuLabel] == "true" {
		return
	}
	required := corev1.NodeSelectorRequirement{
		Key: gpuLabel, Operator: corev1.NodeSelectorOpIn, Values: []string{"true"},
	}
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{required}},
			},
		}
		return
	}
	terms := affinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if len(terms[i].MatchExpressions) > 0 || len(terms[i].MatchFields) > 0 {
			terms[i].MatchExpressions = append(terms[i].MatchExpressions, required)
		}
	}
}

func harden(pod *corev1.Pod) {
	if pod.Spec.SecurityContext == nil {
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
	}
	context := pod.Spec.SecurityContext
	if context.RunAsNonRoot == nil {
		context.RunAsNonRoot = new(true)
	}
	if context.RunAsUser == nil {
		context.RunAsUser = new(runAsUser)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[userAnnotation] = strconv.FormatInt(runAsUser, 10)
	}
	if context.SeccompProfile == nil {
		context.SeccompProfile = &corev1.SeccompProfile{
			Type: corev1.SeccompProfileTypeRuntimeDefault,
		}
	}
}

func hardenContainer(container *corev1.Container) {
	if container.SecurityContext == nil {
		container.SecurityContext = &corev1.SecurityContext{}
	}
	context := container.SecurityContext
	if context.AllowPrivilegeEscalation == nil {
		context.AllowPrivilegeEscalation = new(false)
	}
	if context.Capabilities == nil {
		context.Capabilities = &corev1.Capabilities{}
	}
	if !slices.Contains(context.Capabilities.Drop, "ALL") {
		context.Capabilities.Drop = append(context.Capabilities.Drop, "ALL")
	}
}

func fillDevices(container *corev1.Container) {
	for name, quantity := range container.Resources.Requests {
		if _, given := container.Resources.Limits[name]; isGPU(name) && !given {
			if container.Resources.Limits == nil {
				container.Resources.Limits = corev1.ResourceList{}
			}
			container.Resources.Limits[name] = quantity
		}
	}
}

func hideDevices(container *corev1.Container) {
	if hasGPU(container) {
		return
	}
	for i := range container.Env {
		if container.Env[i].Name == visibleDevices {
			return
		}
	}
	container.Env = append(container.Env, corev1.EnvVar{Name: visibleDevices, Value: "void"})
}

// trespass returns why a Pod without a request may not be where GPU nodes are, or nothing.
func trespass(pod *corev1.Pod) string {
	if requestsGPU(pod) {
		return ""
	}
	for i := range pod.Spec.Tolerations {
		if t := &pod.Spec.Tolerations[i]; t.Key == gpuTaint || t.Key == "" {
			return fmt.Sprintf("spec.tolerations[%d] admits it to GPU nodes", i)
		}
	}
	if pod.Spec.NodeSelector[gpuLabel] == "true" {
		return "spec.nodeSelector selects GPU nodes"
	}
	return ""
}
