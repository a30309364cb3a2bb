// What eventing-kafka's distributed dispatcher does with the records of one subscription, without Kubernetes around it:
//
//	dispatcher BOOTSTRAP TOPIC GROUP URL
//
// Reads TOPIC from its beginning as a member of GROUP and posts every event to URL, until SIGTERM. It is measured from
// outside. The libraries are of the versions that eventing-kafka had with Knative 1.4; the compiler is today's.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/Shopify/sarama"
	"go.opencensus.io/trace"
	"go.uber.org/zap"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: dispatcher BOOTSTRAP TOPIC GROUP URL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, brokers []string, topic, group, url string) error {
	// Knative's default configuration of tracing: no backend, so spans are made and never sampled.
	trace.ApplyConfig(trace.Config{DefaultSampler: trace.NeverSample()})
	consumer, err := sarama.NewConsumerGroup(brokers, group, config())
	if err != nil {
		return fmt.Errorf("%s: cannot join: %w", group, err)
	}
	defer consumer.Close()
	go func() {
		for err := range consumer.Errors() {
			log.Print(err)
		}
	}()
	logger, err := zap.NewProduction()
	if err != nil {
		return err
	}
	handler := newHandler(url, logger)
	for ctx.Err() == nil { // Consume returns at every rebalance
		if err := consumer.Consume(ctx, []string{topic}, handler); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("%s: cannot consume %s: %w", group, topic, err)
		}
	}
	return nil
}

// config mirrors the `sarama` section of the config-kafka map that eventing-kafka installs, and what its ConfigBuilder
// adds. Only the first offset is another: there it is noted when a subscription is made.
func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_0_0_0
	config.ClientID = "eventing-kafka-channel-dispatcher"
	config.Net.KeepAlive = 30 * time.Second
	config.Net.MaxOpenRequests = 1
	config.Metadata.RefreshFrequency = 5 * time.Minute
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.AutoCommit.Interval = 5 * time.Second
	config.Consumer.Offsets.Retention = 7 * 24 * time.Hour
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	return config
}
