package main

import (
	"context"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Recorded are the samples of one series, one for each step from second 0 on; null where a scrape
// has no sample.
type Recorded struct {
	Labels  map[string]string `json:"labels"`
	Samples []*float64        `json:"samples"`
}

// Evaluation asks for the values of an expression at each step over recorded series.
type Evaluation struct {
	Expression string     `json:"expression"`
	Series     []Recorded `json:"series"`
	Step       int64      `json:"step"`
	Steps      int64      `json:"steps"`
}

// evaluate returns the labels of the results of an expression by step, as Prometheus evaluates it.
func evaluate(asked Evaluation) ([][]map[string]string, error) {
	engine := promql.NewEngine(promql.EngineOpts{
		MaxSamples: 1_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: parser.NewParser(parser.Options{}),
	})
	found := make([][]map[string]string, asked.Steps)
	for step := range asked.Steps {
		at := time.Unix(step*asked.Step, 0)
		query, err := engine.NewInstantQuery(context.Background(), recording(asked), nil, asked.Expression, at)
		if err != nil {
			return nil, err
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			return nil, err
		}
		found[step] = []map[string]string{}
		for _, sample := range vector {
			found[step] = append(found[step], sample.Metric.Map())
		}
		query.Close()
	}
	return found, nil
}

// recording is a storage that has the recorded series and nothing else.
func recording(asked Evaluation) storage.Queryable {
	return storage.QueryableFunc(func(_, _ int64) (storage.Querier, error) {
		return querier{asked: asked}, nil
	})
}

type querier struct {
	storage.LabelQuerier
	asked Evaluation
}

func (q querier) Close() error { return nil }

func (q querier) Select(
	_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher,
) storage.SeriesSet {
	selected := []storage.Series{}
	for _, recorded := range q.asked.Series {
		isSelected := true
		for _, matcher := range matchers {
			isSelected = isSelected && matcher.Matches(recorded.Labels[matcher.Name])
		}
		if !isSelected {
			continue
		}
		samples := []chunks.Sample{}
		for step, value := range recorded.Samples {
			if value != nil {
				samples = append(samples, sample{int64(step) * q.asked.Step * 1000, *value})
			}
		}
		selected = append(selected, storage.NewListSeries(labels.FromMap(recorded.Labels), samples))
	}
	return &set{series: selected, at: -1}
}

type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
