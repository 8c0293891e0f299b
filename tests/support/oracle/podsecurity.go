package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	defaults "k8s.io/kubernetes/pkg/apis/core/v1"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

type podSecurityRequest struct {
	request
	Level   string     `json:"level"`
	Version string     `json:"version"`
	Pod     corev1.Pod `json:"pod"`
	// Defaulted applies the API server's defaults first, as they are when admission sees a Pod: a
	// volume without any source becomes an emptyDir, for one.
	Defaulted bool `json:"defaulted"`
}

type podSecurityResult struct {
	Allowed bool     `json:"allowed"`
	Reasons []string `json:"reasons"`
	Details []string `json:"details"`
}

// podSecurity tells what the Pod Security admission plugin decides for a level and a version.
func podSecurity(line []byte) (any, error) {
	var asked podSecurityRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	level, err := psa.ParseLevel(asked.Level)
	if err != nil {
		return nil, fmt.Errorf("level %q: %w", asked.Level, err)
	}
	version, err := psa.ParseVersion(asked.Version)
	if err != nil {
		return nil, fmt.Errorf("version %q: %w", asked.Version, err)
	}
	// plugin/pkg/admission/security/podsecurity passes an emulated version only where the API server
	// emulates an older minor release; by default it is nil.
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	if asked.Defaulted {
		defaults.SetObjectDefaults_Pod(&asked.Pod)
	}
	verdict := policy.AggregateCheckResults(evaluator.EvaluatePod(
		psa.LevelVersion{Level: level, Version: version}, &asked.Pod.ObjectMeta, &asked.Pod.Spec))
	return podSecurityResult{
		Allowed: verdict.Allowed,
		Reasons: append([]string{}, verdict.ForbiddenReasons...),
		Details: append([]string{}, verdict.ForbiddenDetails...),
	}, nil
}

// latestPodSecurityVersion is what "latest" comes to: the newest version that changes any check.
func latestPodSecurityVersion() string {
	newest := psa.MajorMinorVersion(1, 0)
	for _, check := range policy.DefaultChecks() {
		for _, version := range check.Versions {
			if newest.Older(version.MinimumVersion) {
				newest = version.MinimumVersion
			}
		}
	}
	return newest.String()
}
