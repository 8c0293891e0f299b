// Command promql reads JSON. For a list of PromQL expressions, it prints what Prometheus' own parser
// makes of each: an error, or the series that it selects and its labels. With the argument
// "evaluate", it reads evaluations, and prints what Prometheus' own engine returns at each step.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/prometheus/prometheus/promql/parser"
)

// Selected is one series that an expression selects, with the labels that it is selected by.
type Selected struct {
	Name   string   `json:"name"`
	Labels []string `json:"labels"`
}

// Answer is what is told of one expression.
type Answer struct {
	Error    string     `json:"error"`
	Selected []Selected `json:"selected"`
	// Grouping are the labels of by, without, on, ignoring, group_left and group_right.
	Grouping []string `json:"grouping"`
	// Bare are the series that no function such as rate is applied to.
	Bare []string `json:"bare"`
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "evaluate" {
		var asked []Evaluation
		if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
			log.Fatal(err)
		}
		found := make([][][]map[string]string, len(asked))
		for number, each := range asked {
			var err error
			if found[number], err = evaluate(each); err != nil {
				log.Fatal(err)
			}
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			log.Fatal(err)
		}
		return
	}
	var expressions []string
	if err := json.NewDecoder(os.Stdin).Decode(&expressions); err != nil {
		log.Fatal(err)
	}
	answers := make([]Answer, 0, len(expressions))
	for _, expression := range expressions {
		answers = append(answers, answer(expression))
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}

func answer(expression string) Answer {
	found := Answer{Selected: []Selected{}, Grouping: []string{}, Bare: []string{}}
	root, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		found.Error = err.Error()
		return found
	}
	parser.Inspect(root, func(node parser.Node, path []parser.Node) error {
		switch node := node.(type) {
		case *parser.VectorSelector:
			selected := Selected{Name: node.Name, Labels: []string{}}
			for _, matcher := range node.LabelMatchers {
				if matcher.Name != "__name__" {
					selected.Labels = append(selected.Labels, matcher.Name)
				}
			}
			found.Selected = append(found.Selected, selected)
			if !isRanged(path) {
				found.Bare = append(found.Bare, node.Name)
			}
		case *parser.AggregateExpr:
			found.Grouping = append(found.Grouping, node.Grouping...)
		case *parser.BinaryExpr:
			if node.VectorMatching != nil {
				found.Grouping = append(found.Grouping, node.VectorMatching.MatchingLabels...)
				found.Grouping = append(found.Grouping, node.VectorMatching.Include...)
			}
		}
		return nil
	})
	return found
}

// isRanged tells whether a selector below path stands for a range of time.
func isRanged(path []parser.Node) bool {
	if len(path) == 0 {
		return false
	}
	_, ranged := path[len(path)-1].(*parser.MatrixSelector)
	return ranged
}
