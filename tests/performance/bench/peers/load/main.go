// Command load sends one request again and again over keep-alive connections with TLS, and prints as
// JSON how many were answered in the time, how long they took, and what was answered else.
//
// It speaks HTTP/1.1 by itself: net/http's client costs as much as a fast server, and the slower of
// the two is what is measured. With -rate the requests are sent on time whether the earlier ones are
// answered or not (an open loop), and their time counts from when they were due.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"
)

type options struct {
	target      *url.URL
	config      *tls.Config
	body        []byte
	connections int
	seconds     float64
	requests    int
	rate        float64
}

// report is what is printed; times are in milliseconds.
type report struct {
	Requests int            `json:"requests"`
	Seconds  float64        `json:"seconds"`
	Rate     float64        `json:"rate"`
	P50      float64        `json:"p50"`
	P90      float64        `json:"p90"`
	P99      float64        `json:"p99"`
	Max      float64        `json:"max"`
	Statuses map[string]int `json:"statuses"`
	Bytes    int            `json:"bytes"`
}

func main() {
	asked, err := parse()
	if err == nil {
		var found *report
		if found, err = run(asked); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(found)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func parse() (*options, error) {
	target := flag.String("url", "", "where to POST to")
	authority := flag.String("ca", "", "file of the server's authority, PEM")
	certificate := flag.String("cert", "", "file of the client's certificate, PEM")
	key := flag.String("key", "", "file of its key, PEM")
	body := flag.String("body", "", "file of the request's body")
	connections := flag.Int("connections", 16, "how many connections, each with one request at a time")
	seconds := flag.Float64("seconds", 5, "how long")
	requests := flag.Int("requests", 0, "how many requests at most; 0 for any number")
	rate := flag.Float64("rate", 0, "requests a second; 0 for as many as are answered")
	flag.Parse()

	asked := options{connections: *connections, seconds: *seconds, requests: *requests, rate: *rate}
	var err error
	if asked.target, err = url.Parse(*target); err != nil {
		return nil, err
	}
	if asked.body, err = os.ReadFile(*body); err != nil {
		return nil, err
	}
	trusted, err := os.ReadFile(*authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("%s holds no certificate", *authority)
	}
	asked.config = &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *key)
		if err != nil {
			return nil, err
		}
		asked.config.Certificates = []tls.Certificate{pair}
	}
	return &asked, nil
}

// outcome is what one connection has seen.
type outcome struct {
	times    []time.Duration
	statuses map[string]int
	bytes    int
	err      error
}

func run(asked *options) (*report, error) {
	clients := make([]*client, asked.connections)
	for i := range clients {
		var err error
		if clients[i], err = dial(asked); err != nil {
			return nil, err
		}
	}
	outcomes := make([]outcome, asked.connections)
	var all sync.WaitGroup
	began := time.Now()
	for i, client := range clients {
		all.Go(func() { outcomes[i] = client.work(asked, i, began) })
	}
	all.Wait()
	return sum(outcomes, time.Since(began))
}

func sum(outcomes []outcome, took time.Duration) (*report, error) {
	found := report{Seconds: took.Seconds(), Statuses: map[string]int{}}
	var times []time.Duration
	for _, each := range outcomes {
		if each.err != nil {
			return nil, each.err
		}
		times = append(times, each.times...)
		for status, count := range each.statuses {
			found.Statuses[status] += count
		}
		found.Bytes = max(found.Bytes, each.bytes)
	}
	if len(times) == 0 {
		return nil, fmt.Errorf("nothing was answered")
	}
	slices.Sort(times)
	at := func(share float64) float64 {
		return float64(times[int(share*float64(len(times)-1))].Nanoseconds()) / 1e6
	}
	found.Requests, found.Rate = len(times), float64(len(times))/took.Seconds()
	found.P50, found.P90, found.P99, found.Max = at(0.5), at(0.9), at(0.99), at(1)
	return &found, nil
}

type client struct {
	connection *tls.Conn
	reader     *bufio.Reader
	request    []byte
}

func dial(asked *options) (*client, error) {
	connection, err := tls.Dial("tcp", asked.target.Host, asked.config)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
			"Accept: application/json\r\nContent-Length: %d\r\n\r\n",
		asked.target.RequestURI(), asked.target.Host, len(asked.body),
	)
	request := append([]byte(head), asked.body...)
	return &client{connection, bufio.NewReaderSize(connection, 64<<10), request}, nil
}

// work sends requests until the time or their number is over.
func (c *client) work(asked *options, index int, began time.Time) outcome {
	defer c.connection.Close()
	seen := outcome{statuses: map[string]int{}}
	end := began.Add(time.Duration(asked.seconds * float64(time.Second)))
	for n := 0; asked.requests == 0 || n*asked.connections+index < asked.requests; n++ {
		due := time.Now()
		if asked.rate > 0 {
			turn := float64(n*asked.connections+index) / asked.rate
			due = began.Add(time.Duration(turn * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		if due.After(end) {
			break
		}
		status, length, err := c.ask()
		if err != nil {
			seen.err = err
			break
		}
		seen.times = append(seen.times, time.Since(due))
		seen.statuses[status]++
		seen.bytes = length
	}
	return seen
}

// ask sends the request, and returns the answer's status and the length of its body.
func (c *client) ask() (string, int, error) {
	if _, err := c.connection.Write(c.request); err != nil {
		return "", 0, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return "", 0, err
	}
	defer response.Body.Close()
	length, err := io.Copy(io.Discard, response.Body)
	return strconv.Itoa(response.StatusCode), int(length), err
}
