// Command webhook is the peer that gpufence is measured against: an admission webhook with
// controller-runtime, written as its documentation shows. It adds to GPU Pods what gpufence adds by
// its default policy, and refuses what gpufence refuses for the same reasons.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

func main() {
	host := flag.String("host", "127.0.0.1", "address to listen on")
	port := flag.Int("port", 9443, "port to listen on")
	folder := flag.String("certs", "", "folder of tls.crt and tls.key")
	flag.Parse()
	if err := serve(*host, *port, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "webhook:", err)
		os.Exit(1)
	}
}

func serve(host string, port int, folder string) error {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return err
	}
	decoder := admission.NewDecoder(scheme)
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, CertDir: folder})
	server.Register("/mutate", &admission.Webhook{Handler: &mutator{decoder}})
	server.Register("/validate", &admission.Webhook{Handler: &validator{decoder, evaluator}})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return server.Start(ctx)
}

type mutator struct {
	decoder admission.Decoder
}

// Handle adds the other side of device resources, tolerations, node affinity, the restricted
// security context, and void devices, to Pods that request a GPU.
func (m *mutator) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := m.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if !requestsGPU(pod) {
		return admission.Allowed("")
	}
	mutate(pod)
	mutated, err := json.Marshal(pod)
	if err != nil {
		return admission.Errored(http.StatusInternalServerError, err)
	}
	return admission.PatchResponseFromRaw(request.Object.Raw, mutated)
}

type validator struct {
	decoder   admission.Decoder
	evaluator policy.Evaluator
}

// Handle refuses Pods that trespass on GPU nodes, and GPU Pods below the restricted profile.
func (v *validator) Handle(_ context.Context, request admission.Request) admission.Response {
	pod := &corev1.Pod{}
	if err := v.decoder.Decode(request, pod); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if reason := trespass(pod); reason != "" {
		return admission.Denied(reason)
	}
	if requestsGPU(pod) {
		level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
		for _, result := range v.evaluator.EvaluatePod(level, &pod.ObjectMeta, &pod.Spec) {
			if !result.Allowed {
				return admission.Denied(result.ForbiddenReason + ": " + result.ForbiddenDetail)
			}
		}
	}
	return admission.Allowed("")
}
