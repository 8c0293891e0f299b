// Command oracle answers what Kubernetes' own code says of Pods, nodes, quantities and names, so that
// the tests compare gpufence with that code and not with a reading of it.
//
// It reads one JSON object a line, {"op": ..., "id": ..., ...}, and writes one a line in the same
// order: {"id": ..., "result": {...}}, or {"id": ..., "error": "..."} for a request that is at fault
// or makes the library panic. It ends at the end of its input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	kjson "sigs.k8s.io/json"
)

// operations are the questions that can be asked: each takes the whole line.
var operations = map[string]func(line []byte) (any, error){
	"about":        about,
	"allocatable":  allocatable,
	"compare":      compare,
	"documents":    documents,
	"feasible":     feasible,
	"podSecurity":  podSecurity,
	"quantity":     quantity,
	"resourceName": resourceName,
	"tolerates":    tolerates,
	"validate":     validate,
}

// request is what every line carries.
type request struct {
	Op string          `json:"op"`
	ID json.RawMessage `json:"id"`
	// Lenient ignores unknown and repeated fields, as an API server does that is asked to. By
	// default they are errors: a misspelt field would make a comparison pass for the wrong reason.
	Lenient bool `json:"lenient"`
}

type answer struct {
	ID     json.RawMessage `json:"id"`
	Result any             `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers every line of in, however long, until its end.
func serve(in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := encoder.Encode(respond(line)); err != nil {
			return err
		}
	}
}

func respond(line []byte) (reply answer) {
	var asked request
	defer func() {
		if reason := recover(); reason != nil {
			reply = answer{ID: asked.ID, Error: fmt.Sprintf("panic: %v\n%s", reason, debug.Stack())}
		}
	}()
	if err := kjson.UnmarshalCaseSensitivePreserveInts(line, &asked); err != nil {
		return answer{Error: fmt.Sprintf("the line is no request: %v", err)}
	}
	operation, known := operations[asked.Op]
	if !known {
		return answer{ID: asked.ID, Error: fmt.Sprintf("no operation is called %q", asked.Op)}
	}
	result, err := operation(line)
	if err != nil {
		return answer{ID: asked.ID, Error: err.Error()}
	}
	return answer{ID: asked.ID, Result: result}
}

// decode reads a line as the API server reads a body: field names by their exact case, and typed
// fields refuse values of another type.
func decode(line []byte, into interface{ lenient() bool }) error {
	strict, err := kjson.UnmarshalStrict(line, into)
	if err != nil {
		return err
	}
	if into.lenient() {
		return nil
	}
	return errors.Join(strict...)
}

func (r *request) lenient() bool { return r.Lenient }
