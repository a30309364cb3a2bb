package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/hashicorp/go-retryablehttp"
	"go.opencensus.io/plugin/ochttp"
	"go.opencensus.io/trace"
)

// newClient mirrors kncloudevents.NewHttpMessageSender with the connections that config-kafka asks for.
func newClient() *http.Client {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConns = 1000
	base.MaxIdleConnsPerHost = 100
	return &http.Client{Transport: &ochttp.Transport{Base: base, Propagation: traceFormat}}
}

// dispatch mirrors MessageDispatcherImpl.DispatchMessageWithRetries for a subscriber without reply and dead letter sink.
func dispatch(
	ctx context.Context, client *http.Client, url string, message binding.Message, headers http.Header,
) error {
	defer func() { _ = message.Finish(nil) }()
	ctx, span := trace.StartSpan(ctx, "knative.dev", trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	if err := cehttp.WriteRequest(ctx, message, request); err != nil {
		return err
	}
	headers = headers.Clone()
	headers.Set("Prefer", "reply")
	for name, values := range headers {
		request.Header[name] = values
	}
	response, err := send(client, request)
	if err != nil {
		return fmt.Errorf("unable to complete request to %s: %w", url, err)
	}
	defer response.Body.Close()
	body := new(bytes.Buffer)
	if _, err := body.ReadFrom(response.Body); err != nil {
		return err
	}
	if response.StatusCode < 200 || response.StatusCode >= 300 {
		return fmt.Errorf("unexpected HTTP response, expected 2xx, got %d", response.StatusCode)
	}
	// An event in the answer would go to the reply URL; there is none here, but the answer is looked at all the same.
	answer := cehttp.NewMessage(response.Header, io.NopCloser(body))
	_ = answer.ReadEncoding()
	return nil
}

// send mirrors HttpMessageSender.SendWithRetries under kncloudevents.NoRetries, the default of a subscriber without a
// delivery spec: a client that could retry is made for every event.
func send(client *http.Client, request *http.Request) (*http.Response, error) {
	retrying := retryablehttp.Client{
		HTTPClient:   client,
		RetryWaitMin: time.Second,
		RetryWaitMax: 30 * time.Second,
		RetryMax:     0,
		CheckRetry:   func(context.Context, *http.Response, error) (bool, error) { return false, nil },
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return 0 },
		ErrorHandler: func(response *http.Response, err error, _ int) (*http.Response, error) { return response, err },
	}
	return retrying.Do(&retryablehttp.Request{Request: request})
}
