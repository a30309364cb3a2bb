// Posts CloudEvents to an ingress over kept-alive connections, DEPTH requests at a time on each, and notes which were
// answered with 202. It is written to cost little: requests are made once, and only the ids in them change.
//
//	posts ADDRESS PATH CONNECTIONS DEPTH EVENTS PER_REQUEST SIZE ACKNOWLEDGED_FILE
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const idDigits = 12

type result struct {
	acknowledged []int64
	answers      map[int]int
	latencies    []time.Duration
	err          error
}

func main() {
	if len(os.Args) != 9 {
		fmt.Fprintln(os.Stderr, "usage: posts ADDRESS PATH CONNECTIONS DEPTH EVENTS PER_REQUEST SIZE ACKNOWLEDGED_FILE")
		os.Exit(2)
	}
	address, path := os.Args[1], os.Args[2]
	connections, depth, events := number(os.Args[3]), number(os.Args[4]), number(os.Args[5])
	perRequest, size := number(os.Args[6]), number(os.Args[7])
	var next atomic.Int64
	results := make([]result, connections)
	var all sync.WaitGroup
	began := time.Now()
	for i := range results {
		all.Add(1)
		go func(r *result) {
			defer all.Done()
			r.answers = map[int]int{}
			r.err = post(address, path, depth, perRequest, size, int64(events), &next, r)
		}(&results[i])
	}
	all.Wait()
	seconds := time.Since(began).Seconds()
	report(results, seconds, perRequest, os.Args[8])
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil || value < 1 {
		fmt.Fprintf(os.Stderr, "need a whole number of at least 1, got %q\n", text)
		os.Exit(2)
	}
	return value
}

// request returns the bytes of one request, with zeros for ids.
func request(address, path string, perRequest, size int) []byte {
	blank := strings.Repeat("0", idDigits)
	data := strings.Repeat("x", size)
	var head, body bytes.Buffer
	fmt.Fprintf(&head, "POST %s HTTP/1.1\r\nHost: %s\r\n", path, address)
	if perRequest == 1 {
		fmt.Fprintf(&head, "ce-specversion: 1.0\r\nce-source: /benchmarks\r\nce-type: benchmark.event\r\nce-id: %s\r\n", blank)
		fmt.Fprintf(&head, "Content-Type: text/plain\r\n")
		body.WriteString(data)
	} else {
		fmt.Fprintf(&head, "Content-Type: application/cloudevents-batch+json\r\n")
		body.WriteByte('[')
		for i := 0; i < perRequest; i++ {
			if i > 0 {
				body.WriteByte(',')
			}
			fmt.Fprintf(&body, `{"specversion":"1.0","source":"/benchmarks","type":"benchmark.event","id":"%s",`, blank)
			fmt.Fprintf(&body, `"datacontenttype":"text/plain","data":"%s"}`, data)
		}
		body.WriteByte(']')
	}
	fmt.Fprintf(&head, "Content-Length: %d\r\n\r\n", body.Len())
	return append(head.Bytes(), body.Bytes()...)
}

// blanks returns where the ids stand.
func blanks(whole []byte) []int {
	blank := []byte(strings.Repeat("0", idDigits))
	var places []int
	for from := 0; ; {
		found := bytes.Index(whole[from:], blank)
		if found < 0 {
			break
		}
		places = append(places, from+found)
		from += found + idDigits
	}
	return places
}

func post(address, path string, depth, perRequest, size int, events int64, next *atomic.Int64, r *result) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer connection.Close()
	one := request(address, path, perRequest, size)
	whole := bytes.Repeat(one, depth)
	places := blanks(whole)
	reader := bufio.NewReaderSize(connection, 4096)
	inOne := int64(perRequest * depth)
	for {
		first := next.Add(inOne) - inOne
		if first >= events {
			return nil
		}
		for i, place := range places {
			id := first + int64(i)
			for digit := idDigits - 1; digit >= 0; digit-- {
				whole[place+digit] = byte('0' + id%10)
				id /= 10
			}
		}
		began := time.Now()
		if _, err := connection.Write(whole); err != nil {
			return err
		}
		for i := 0; i < depth; i++ {
			status, err := answer(reader)
			if err != nil {
				return err
			}
			r.answers[status]++
			if status == 202 {
				r.acknowledged = append(r.acknowledged, first+int64(i*perRequest))
			}
		}
		r.latencies = append(r.latencies, time.Since(began))
	}
}

// answer reads one response and returns its status.
func answer(reader *bufio.Reader) (int, error) {
	line, err := reader.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < 12 {
		return 0, fmt.Errorf("no status line: %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, err
	}
	length := 0
	for {
		line, err := reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			break
		}
		if len(line) > 15 && strings.EqualFold(string(line[:15]), "content-length:") {
			if length, err = strconv.Atoi(strings.TrimSpace(string(line[15:]))); err != nil {
				return 0, err
			}
		}
	}
	_, err = reader.Discard(length)
	return status, err
}

func report(results []result, seconds float64, perRequest int, file string) {
	answers := map[int]int{}
	acknowledged := 0
	problems := 0
	var longest time.Duration
	var latencies []time.Duration
	out, err := os.Create(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	lines := bufio.NewWriter(out)
	for _, r := range results {
		for status, count := range r.answers {
			answers[status] += count
		}
		if r.err != nil {
			problems++
			fmt.Fprintln(os.Stderr, r.err)
		}
		for _, first := range r.acknowledged {
			for i := 0; i < perRequest; i++ {
				fmt.Fprintf(lines, "%0*d\n", idDigits, first+int64(i))
			}
			acknowledged += perRequest
		}
		latencies = append(latencies, r.latencies...)
	}
	for _, latency := range latencies {
		if latency > longest {
			longest = latency
		}
	}
	lines.Flush()
	out.Close()
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"acknowledged": acknowledged, "answers": answers, "seconds": seconds, "broken_connections": problems,
		"longest_s": longest.Seconds(),
	})
}
