package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/Shopify/sarama"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"go.opencensus.io/plugin/ochttp/propagation/tracecontext"
	"go.opencensus.io/trace"
	"go.uber.org/zap"
)

// drainTime mirrors the time-out of SaramaConsumerHandler: how long an event may still take once the claim is lost.
const drainTime = 60 * time.Second

var traceFormat = &tracecontext.HTTPFormat{}

// handler mirrors SaramaConsumerHandler (pkg/common/consumer) and the dispatcher's Handler behind it.
type handler struct {
	url    string
	client *http.Client
	logger *zap.Logger
}

func newHandler(url string, logger *zap.Logger) *handler {
	return &handler{url: url, client: newClient(), logger: logger}
}

func (*handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim dispatches one event of its partition after the other. Sarama calls it in a goroutine for each claim.
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	handled := make(chan bool)
	sugared := h.logger.Sugar()
	for record := range claim.Messages() {
		// Nothing is logged of an event by default, but the level is asked for, this way, before and after each.
		sugared.Desugar().Check(zap.DebugLevel, "claimed")
		if session.Context().Err() != nil {
			break
		}
		// A goroutine for each record, so that a lost claim can cancel a request that takes too long.
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			err := h.handle(ctx, record)
			if err != nil {
				h.logger.Error("not delivered", zap.Int32("partition", record.Partition),
					zap.Int64("offset", record.Offset), zap.Error(err))
			}
			handled <- !errors.Is(err, context.Canceled)
		}()
		mark := false
		select {
		case mark = <-handled:
		case <-session.Context().Done():
			select {
			case mark = <-handled:
			case <-time.After(drainTime):
				cancel()
				mark = <-handled
			}
		}
		cancel()
		// Marked after all attempts, whether one succeeded or none.
		if mark {
			session.MarkMessage(record, "")
			sugared.Desugar().Check(zap.DebugLevel, "marked")
		}
	}
	return nil
}

// handle mirrors Handler.Handle: the record as a message of the CloudEvents SDK, under a span, dispatched; headers that are
// not the event's attributes go on as they are.
func (h *handler) handle(ctx context.Context, record *sarama.ConsumerMessage) error {
	headers := http.Header{}
	for _, header := range record.Headers {
		if !strings.HasPrefix(string(header.Key), "ce_") {
			headers.Add(string(header.Key), string(header.Value))
		}
	}
	message := kafka_sarama.NewMessageFromConsumerMessage(record)
	if message.ReadEncoding() == binding.EncodingUnknown {
		return errors.New("not a CloudEvent; skipped")
	}
	ctx, span := startSpan(h.logger.Sugar(), ctx, message, "kafkachannel-"+record.Topic)
	defer span.End()
	err := dispatch(ctx, h.client, h.url, message, headers)
	h.logger.Debug("dispatched", zap.Error(err))
	return err
}

// startSpan mirrors tracing.StartTraceFromMessage: the event's own trace goes on.
func startSpan(
	logger *zap.SugaredLogger, ctx context.Context, message *kafka_sarama.Message, name string,
) (context.Context, *trace.Span) {
	parent, ok := traceFormat.SpanContextFromHeaders(
		string(message.Headers["traceparent"]), string(message.Headers["tracestate"]))
	if !ok {
		logger.Warn("no trace goes with the event; one begins here")
		return trace.StartSpan(ctx, name)
	}
	return trace.StartSpanWithRemoteParent(ctx, name, parent)
}
