package main

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

type documentsRequest struct {
	request
	Text string `json:"text"`
}

type documentsFound struct {
	// Objects are told in their order, up to what is at fault.
	Objects []map[string]any `json:"objects"`
	Fault   string           `json:"fault"`
}

// documents asks which objects a file holds, as kubectl reads it: StreamVisitor and
// FlattenListVisitor of k8s.io/cli-runtime, pkg/resource/visitor.go, are written with the same
// decoders.
func documents(line []byte) (any, error) {
	var asked documentsRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	found := documentsFound{Objects: []map[string]any{}}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(asked.Text), 4096)
	for {
		var next runtime.RawExtension
		if err := decoder.Decode(&next); err != nil {
			if !errors.Is(err, io.EOF) {
				found.Fault = err.Error()
			}
			return found, nil
		}
		raw := bytes.TrimSpace(next.Raw)
		if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
			continue
		}
		obj, _, err := unstructured.UnstructuredJSONScheme.Decode(raw, nil, nil)
		if err != nil {
			found.Fault = err.Error()
			return found, nil
		}
		objects, err := flat(obj)
		if err != nil {
			found.Fault = err.Error()
			return found, nil
		}
		found.Objects = append(found.Objects, objects...)
	}
}

func flat(obj runtime.Object) ([]map[string]any, error) {
	if !meta.IsListType(obj) {
		return []map[string]any{obj.(*unstructured.Unstructured).Object}, nil
	}
	items, err := meta.ExtractList(obj)
	if err != nil {
		return nil, err
	}
	var all []map[string]any
	for _, item := range items {
		objects, err := flat(item)
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}
