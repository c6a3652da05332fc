package fairqotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
)

// Tracing continues traces from the put of a task to its handler. The zero value is ready to use.
//
//	var tracing fairqotel.Tracing
//	tasks.Put(ctx, "alice", mail, task.PutOptions{Metadata: tracing.Inject(ctx, nil)})
//	p := pool.New(tasks, fairqotel.Handler(tracing, "emails", send), nil)
type Tracing struct {
	// TracerProvider makes the spans. nil means that of [otel.GetTracerProvider].
	TracerProvider trace.TracerProvider

	// Propagator writes the trace into the metadata. nil means that of
	// [otel.GetTextMapPropagator], which does nothing unless the program has set one, such as
	// [propagation.TraceContext].
	Propagator propagation.TextMapPropagator

	// Links makes each attempt the root of a trace of its own, with a link to the span of the put.
	// Use it if hours may lie between the two. Otherwise its span is a child.
	Links bool
}

func (t Tracing) propagator() propagation.TextMapPropagator {
	if t.Propagator == nil {
		return otel.GetTextMapPropagator()
	}
	return t.Propagator
}

// Inject returns a copy of the given metadata with the trace of ctx, for [task.PutOptions] or
// [pool.PutOptions]. If the copy would exceed [task.MaxMetadata], Inject returns the given map: no
// task should be refused for its trace.
func (t Tracing) Inject(ctx context.Context, metadata map[string]string) map[string]string {
	carrier := propagation.MapCarrier{}
	maps.Copy(carrier, metadata)
	t.propagator().Inject(ctx, carrier)
	size := 0
	for name, value := range carrier {
		size += len(name) + len(value)
	}
	if len(carrier) == 0 || size > task.MaxMetadata {
		return metadata
	}
	return carrier
}

// Start begins a span for the work on a task of a queue, and returns a context with the span. The
// caller must call the span's End when the work is done. [Handler] does both.
func (t Tracing) Start(ctx context.Context, queue string,
	of *task.Info,
) (context.Context, trace.Span) {
	provider := t.TracerProvider
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	ctx = t.propagator().Extract(ctx, propagation.MapCarrier(of.Metadata))
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("messaging.system", "fairq"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.operation.name", "process"),
			attribute.String("messaging.destination.name", queue),
			attribute.String("messaging.message.id", strconv.FormatUint(uint64(of.ID), 10)),
			text("fairq.key", of.Key), text("fairq.kind", of.Kind),
			attribute.Int("fairq.attempt", of.Attempts),
		),
	}
	if t.Links {
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
	}
	return provider.Tracer(scope).Start(ctx, "process "+queue, options...)
}

// text is an attribute of a string that may hold any bytes.
func text(name, value string) attribute.KeyValue {
	return attribute.String(name, strings.ToValidUTF8(value, "\uFFFD"))
}

// Handler returns a handler that calls h. Each attempt of each task has a span of its own. The
// span records the error that h returns, except [pool.Snooze], and whether h panicked.
func Handler[V any](t Tracing, queue string,
	h pool.Handler[*task.Task[V]],
) pool.Handler[*task.Task[V]] {
	return func(ctx context.Context, tk *task.Task[V]) (err error) {
		ctx, span := t.Start(ctx, queue, new(tk.Info()))
		defer span.End()
		returned := false
		defer func() {
			if !returned {
				span.SetStatus(codes.Error, "the handler has not returned")
				span.SetAttributes(attribute.String("error.type", "panic"))
			}
		}()
		err = h(ctx, tk)
		if returned = true; err != nil && !errors.Is(err, pool.ErrSnoozed) {
			span.RecordError(err)
			span.SetStatus(codes.Error, err.Error())
			cause := err // its innermost type, because a handler may wrap it
			for wrapped := cause; wrapped != nil; wrapped = errors.Unwrap(wrapped) {
				cause = wrapped
			}
			span.SetAttributes(attribute.String("error.type", fmt.Sprintf("%T", cause)))
		}
		return err
	}
}
