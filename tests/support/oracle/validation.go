package main

import (
	"runtime/debug"
	"strings"

	corev1 "k8s.io/api/core/v1"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/capabilities"
)

type validateRequest struct {
	request
	Pod corev1.Pod `json:"pod"`
}

type validateResult struct {
	Valid  bool     `json:"valid"`
	Errors []string `json:"errors"`
	// Pod is the object with the API server's defaults, as admission sees it.
	Pod *corev1.Pod `json:"pod"`
}

// validate tells whether the API server would create the Pod, had no admission plugin anything to say:
// defaults, conversion and validation in the order of pkg/registry/core/pod/strategy.go. Privileged
// containers are taken as allowed (--allow-privileged), as they are in every cluster with a CNI plugin.
func validate(line []byte) (any, error) {
	var asked validateRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	capabilities.Setup(true, 0)
	pod := &asked.Pod
	conversion.SetObjectDefaults_Pod(pod)
	named := pod.DeepCopy()
	nameIt(named)
	var internal core.Pod
	if err := conversion.Convert_v1_Pod_To_core_Pod(named, &internal, nil); err != nil {
		return nil, err
	}
	podutil.DropDisabledPodFields(&internal, nil)
	options := podutil.GetValidationOptionsFromPodSpecAndMeta(&internal.Spec, nil, &internal.ObjectMeta, nil)
	options.ResourceIsPod = true
	result := validateResult{Errors: []string{}, Pod: pod}
	for _, failure := range validation.ValidatePodCreate(&internal, options) {
		result.Errors = append(result.Errors, failure.Error())
	}
	result.Valid = len(result.Errors) == 0
	return result, nil
}

// nameIt fills in what a create request's path and the name generator give every Pod, and what the
// ServiceAccount plugin defaults.
func nameIt(pod *corev1.Pod) {
	if pod.Namespace == "" {
		pod.Namespace = corev1.NamespaceDefault
	}
	if pod.Name == "" {
		pod.Name = pod.GenerateName + "x"
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = "default"
	}
	if pod.Spec.DeprecatedServiceAccount == "" {
		pod.Spec.DeprecatedServiceAccount = pod.Spec.ServiceAccountName
	}
}

type aboutResult struct {
	// Modules are the versions of the Kubernetes modules that answer.
	Modules             map[string]string `json:"modules"`
	PodSecurityLatest   string            `json:"podSecurityLatest"`
	ComparisonOperators bool              `json:"comparisonOperators"`
}

// about tells which Kubernetes it is that answers.
func about([]byte) (any, error) {
	result := aboutResult{
		Modules:             map[string]string{},
		PodSecurityLatest:   latestPodSecurityVersion(),
		ComparisonOperators: comparisonOperators(nil),
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			if strings.HasPrefix(module.Path, "k8s.io/") {
				result.Modules[module.Path] = module.Version
			}
		}
	}
	return result, nil
}
