// A subscriber that takes its time and counts: sink PORT.
//
// Answers every POST with 202, at once or after what the path's query says (?delay=5ms) or the event's extension `slow`
// (ce-slow: 1s) where the query allows it (?slow=1). GET /counts is a JSON object: requests answered, by path, those of
// events that carry the extension apart (path + " slow").
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

var counts sync.Map // of *atomic.Int64, by name

func main() {
	http.HandleFunc("GET /counts", report)
	http.HandleFunc("POST /", take)
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Args[1], nil))
}

func take(answer http.ResponseWriter, request *http.Request) {
	_, _ = io.Copy(io.Discard, request.Body)
	name, slow := request.URL.Path, request.Header.Get("Ce-Slow")
	if slow != "" {
		name += " slow"
	}
	text := ""
	if request.URL.RawQuery != "" {
		query := request.URL.Query()
		if text = query.Get("delay"); query.Get("slow") != "" {
			text = slow
		}
	}
	if text != "" {
		delay, err := time.ParseDuration(text)
		if err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		time.Sleep(delay)
	}
	counter, known := counts.Load(name)
	if !known {
		counter, _ = counts.LoadOrStore(name, new(atomic.Int64))
	}
	counter.(*atomic.Int64).Add(1)
	answer.WriteHeader(http.StatusAccepted)
}

func report(answer http.ResponseWriter, _ *http.Request) {
	found := map[string]int64{}
	counts.Range(func(name, counter any) bool {
		found[name.(string)] = counter.(*atomic.Int64).Load()
		return true
	})
	_ = json.NewEncoder(answer).Encode(found)
}
