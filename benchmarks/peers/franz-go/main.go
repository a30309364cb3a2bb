// The plain loop of franz-go: drain BOOTSTRAP TOPIC COUNT GROUP.
//
// Reads COUNT records, touching key, value and headers of each, with an asynchronous commit per poll, and prints the
// JSON line of benchmarks/meter.py. The last commit is awaited, and part of what is measured. As every Go program it uses all cores; it shows how fast this broker can be read.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := drain(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func drain(bootstrap, topic, number, group string) error {
	count, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	var began time.Time
	var cpu time.Duration
	seen, bytes := 0, 0
	for seen < count {
		fetches := client.PollRecords(ctx, 10_000)
		if err := fetches.Err(); err != nil {
			return err
		}
		if seen == 0 {
			began, cpu = time.Now(), cpuTime()
		}
		fetches.EachRecord(func(record *kgo.Record) {
			bytes += len(record.Key) + len(record.Value)
			for _, header := range record.Headers {
				bytes += len(header.Key) + len(header.Value)
			}
			seen++
		})
		client.CommitOffsets(ctx, client.UncommittedOffsets(), nil) // does not wait
	}
	if err := client.CommitUncommittedOffsets(ctx); err != nil {
		return err
	}
	seconds, used := time.Since(began).Seconds(), (cpuTime() - cpu).Seconds()
	fmt.Fprintln(os.Stderr, bytes, "bytes") // also keeps the sum in use
	rss, err := peakMiB()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"records": seen, "seconds": seconds, "cpu": used, "rss_mib": rss,
	})
}

func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func peakMiB() (float64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.Atoi(fields[1])
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/self/status has no VmHWM")
}
