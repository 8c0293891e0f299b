package main

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kubernetes/pkg/apis/core"
	corehelper "k8s.io/kubernetes/pkg/apis/core/helper"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
)

// maxExponent bounds what is asked of the library: it builds 10 to the power of the exponent, which
// for 1e-1000000000 takes gigabytes and minutes.
const maxExponent = 4096

var exponent = regexp.MustCompile(`[eE]([+-]?[0-9]+)"?$`)

// parse reads a JSON value as the API server reads a resource's quantity. The flag tells that the
// library itself refuses the value; an error, that the oracle does not ask it.
func parse(raw json.RawMessage) (value resource.Quantity, refused error, err error) {
	if found := exponent.FindSubmatch(raw); found != nil {
		// The library truncates to 32 bits, so 1e4294967296 is 1.
		power, _ := strconv.ParseInt(string(found[1]), 10, 64)
		if power := int32(power); power > maxExponent || power < -maxExponent {
			return value, nil, fmt.Errorf("quantity %s: the oracle leaves exponents beyond %d alone", raw, maxExponent)
		}
	}
	return value, value.UnmarshalJSON(raw), nil
}

type quantityRequest struct {
	request
	Values []json.RawMessage `json:"values"`
}

type quantityResult struct {
	// OK is false where the API server refuses the value, and Error says why.
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	// Text is how the API server would write the value.
	Text string `json:"text"`
	// Nanos is the exact value in 1e-9, a whole number of any length.
	Nanos string `json:"nanos"`
	// IsInteger is validation's rule for extended resources (ValidateResourceQuantityValue), which
	// rounds up to thousandths first: 999999999n is an integer, by it.
	IsInteger bool `json:"isInteger"`
}

func quantity(line []byte) (any, error) {
	var asked quantityRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	results := make([]quantityResult, 0, len(asked.Values))
	for _, raw := range asked.Values {
		value, refused, err := parse(raw)
		if err != nil {
			return nil, err
		}
		if refused != nil {
			results = append(results, quantityResult{Error: refused.Error()})
			continue
		}
		results = append(results, quantityResult{
			OK:        true,
			Text:      value.String(),
			IsInteger: value.MilliValue()%1000 == 0,
			Nanos:     nanos(value),
		})
	}
	return results, nil
}

// nanos multiplies exactly. What a parsed quantity holds is never finer than a nano: it was rounded up.
func nanos(value resource.Quantity) string {
	decimal := value.AsDec()
	shift := int64(resource.Nano)*-1 - int64(decimal.Scale())
	unscaled := new(big.Int).Set(decimal.UnscaledBig())
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(max(shift, -shift)), nil)
	if shift >= 0 {
		return unscaled.Mul(unscaled, power).String()
	}
	quotient, remainder := new(big.Int).QuoRem(unscaled, power, new(big.Int))
	if remainder.Sign() != 0 {
		panic(fmt.Sprintf("%s is finer than a nano", decimal))
	}
	return quotient.String()
}

type compareRequest struct {
	request
	A json.RawMessage `json:"a"`
	B json.RawMessage `json:"b"`
}

func compare(line []byte) (any, error) {
	var asked compareRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	var values [2]resource.Quantity
	for i, raw := range []json.RawMessage{asked.A, asked.B} {
		value, refused, err := parse(raw)
		if refused != nil {
			err = fmt.Errorf("quantity %s: %w", raw, refused)
		}
		if err != nil {
			return nil, err
		}
		values[i] = value
	}
	return values[0].Cmp(values[1]), nil
}

type resourceNameRequest struct {
	request
	Names []string `json:"names"`
}

type resourceNameResult struct {
	Extended bool `json:"extended"`
	Native   bool `json:"native"`
	// DeviceClass is set for deviceclass.resource.kubernetes.io/NAME, which asks for a device of that
	// class (pkg/scheduler/util/utils.go, IsDRAExtendedResourceName).
	DeviceClass string `json:"deviceClass"`
	// Overcommit tells whether a request may be below the limit, or have none.
	Overcommit bool `json:"overcommit"`
	// Integer tells whether validation wants a whole number.
	Integer bool `json:"integer"`
}

func resourceName(line []byte) (any, error) {
	var asked resourceNameRequest
	if err := decode(line, &asked); err != nil {
		return nil, err
	}
	results := make([]resourceNameResult, 0, len(asked.Names))
	for _, text := range asked.Names {
		name := corev1.ResourceName(text)
		result := resourceNameResult{
			Extended:   helper.IsExtendedResourceName(name),
			Native:     helper.IsNativeResource(name),
			Overcommit: helper.IsOvercommitAllowed(name),
			Integer:    corehelper.IsIntegerResourceName(core.ResourceName(name)),
		}
		if class, implicit := strings.CutPrefix(text, resourceapi.ResourceDeviceClassPrefix); implicit {
			result.DeviceClass = class
		}
		results = append(results, result)
	}
	return results, nil
}
