package main

import (
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

// comparisonOperators tells whether a toleration's Gt and Lt count. They are behind the feature gate
// TaintTolerationComparisonOperators (pkg/features/kube_features.go), alpha since 1.35 and off by
// default in 1.36: asking the gate itself keeps this true for the version in go.mod.
func comparisonOperators(wanted *bool) bool {
	if wanted != nil {
		return *wanted
	}
	return utilfeature.DefaultFeatureGate.Enabled(features.TaintTolerationComparisonOperators)
}

type toleratesRequest struct {
	request
	Toleration          corev1.Toleration `json:"toleration"`
	Taint               corev1.Taint      `json:"taint"`
	ComparisonOperators *bool             `json:"comparisonOperators"`
}

// tolerates asks of one toleration and one taint; the zero logger discards.
func tolerates(line []byte) (any, error) {
	var asked toleratesRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	enabled := comparisonOperators(asked.ComparisonOperators)
	return asked.Toleration.ToleratesTaint(klog.Logger{}, &asked.Taint, enabled), nil
}

type feasibleRequest struct {
	request
	Pod                 corev1.Pod    `json:"pod"`
	Nodes               []corev1.Node `json:"nodes"`
	ComparisonOperators *bool         `json:"comparisonOperators"`
}

type nodeVerdict struct {
	Feasible bool `json:"feasible"`
	Taints   bool `json:"taints"`
	Affinity bool `json:"affinity"`
	NodeName bool `json:"nodeName"`
	// Untolerated is the first taint that keeps the Pod away.
	Untolerated *corev1.Taint `json:"untolerated"`
	// AffinityError is what the scheduler ignores: a term that cannot be parsed matches nothing.
	AffinityError string `json:"affinityError"`
}

// feasible asks the predicates of kube-scheduler's plugins TaintToleration, NodeAffinity and NodeName,
// for each node in order. Resources, ports, volumes and spec.unschedulable are left out: they change
// from hour to hour, a fence must not lean on them.
func feasible(line []byte) (any, error) {
	var asked feasibleRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	enabled := comparisonOperators(asked.ComparisonOperators)
	required := nodeaffinity.GetRequiredNodeAffinity(&asked.Pod)
	verdicts := make([]nodeVerdict, 0, len(asked.Nodes))
	for i := range asked.Nodes {
		node := &asked.Nodes[i]
		verdict := nodeVerdict{
			NodeName: asked.Pod.Spec.NodeName == "" || asked.Pod.Spec.NodeName == node.Name,
		}
		taint, untolerated := corev1helpers.FindMatchingUntoleratedTaint(
			klog.Logger{}, node.Spec.Taints, asked.Pod.Spec.Tolerations, keepsAway, enabled)
		verdict.Taints = !untolerated
		if untolerated {
			verdict.Untolerated = &taint
		}
		match, err := required.Match(node)
		verdict.Affinity = match
		if err != nil {
			verdict.AffinityError = err.Error()
		}
		verdict.Feasible = verdict.NodeName && verdict.Taints && verdict.Affinity
		verdicts = append(verdicts, verdict)
	}
	return verdicts, nil
}

// keepsAway is the filter that the TaintToleration plugin passes (plugins/helper/taint.go,
// DoNotScheduleTaintsFilterFunc): PreferNoSchedule is a wish.
func keepsAway(taint *corev1.Taint) bool {
	return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
}
