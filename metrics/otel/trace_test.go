package fairqotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	fairqotel "github.com/fairq/fairq/metrics/otel"
	"github.com/fairq/fairq/pool"
	"github.com/fairq/fairq/task"
	"github.com/fairq/fairq/task/memory"
)

var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{},
	propagation.Baggage{})

// recorded returns a provider, and a recorder of ended spans.
func recorded() (*sdktrace.TracerProvider, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), spans
}

func attributes(s *tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// submit puts a task, in a span of its own.
func submit(t *testing.T, ctx context.Context, tracing fairqotel.Tracing, tracer trace.Tracer,
	p *pool.Pool[string], payload string,
) trace.SpanContext {
	t.Helper()
	ctx, span := tracer.Start(ctx, "submit "+payload)
	defer span.End()
	_, err := p.Put(ctx, "a\xff", payload, pool.PutOptions{PutOptions: task.PutOptions{
		Delay: time.Second, Kind: "mail",
		Metadata: tracing.Inject(ctx, map[string]string{"by": "alice"}),
	}})
	require.NoError(t, err)
	return span.SpanContext()
}

func TestTraceGoesOn(t *testing.T) {
	for _, links := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			provider, spans := recorded()
			tracing := fairqotel.Tracing{TracerProvider: provider, Propagator: w3c, Links: links}
			tasks, err := task.Open[string](t.Context(), new(memory.Store), "emails", nil)
			require.NoError(t, err)
			var users []string
			p := pool.New(tasks, fairqotel.Handler(tracing, tasks.Name(),
				func(ctx context.Context, tk *task.Task[string]) error {
					require.True(t, trace.SpanContextFromContext(ctx).IsValid())
					users = append(users,
						baggage.FromContext(ctx).Member("user").Value()+" "+tk.Info().Metadata["by"])
					switch {
					case tk.Payload == "again" && tk.Attempts == 1:
						return pool.RetryAfter(time.Minute)
					case tk.Payload == "later" && time.Since(tk.Info().Created) < time.Minute:
						return pool.Snooze(time.Minute)
					case tk.Payload == "panics":
						panic("oops")
					}
					return nil
				}), &pool.Options[string]{
				Workers: 1,
				Policy: pool.Policy{
					MaxAttempts: 2,
					Backoff:     pool.Backoff{Max: time.Second},
				},
			})
			member, err := baggage.NewMember("user", "7")
			require.NoError(t, err)
			bag, err := baggage.New(member)
			require.NoError(t, err)
			ctx := baggage.ContextWithBaggage(t.Context(), bag)
			for payload, want := range map[string][]string{ // statuses of the attempts
				"works": {""}, "again": {"pool: to be tried again in 1m0s", ""}, "later": {"", ""},
				"panics": {"the handler has not returned", "the handler has not returned"},
			} {
				spans.Reset()
				users = nil
				submitter := submit(t, ctx, tracing, provider.Tracer("test"), p, payload)
				time.Sleep(time.Hour)
				all := spans.GetSpans()
				require.Len(t, all, 1+len(want), payload)
				for i, status := range want {
					s := &all[1+i]
					require.Equal(t, "7 alice", users[i])
					require.Equal(t, "process emails", s.Name)
					require.Equal(t, trace.SpanKindConsumer, s.SpanKind)
					require.Equal(t, status, s.Status.Description)
					require.Equal(t, status != "", s.Status.Code == codes.Error)
					require.Equal(t, status != "", len(s.Events) == 1, "an error is recorded")
					if links {
						require.NotEqual(t, submitter.TraceID(), s.SpanContext.TraceID())
						require.False(t, s.Parent.IsValid())
						require.Len(t, s.Links, 1)
						require.Equal(t, submitter.SpanID(), s.Links[0].SpanContext.SpanID())
					} else {
						require.Equal(t, submitter.TraceID(), s.SpanContext.TraceID())
						require.Equal(t, submitter.SpanID(), s.Parent.SpanID())
						require.True(t, s.Parent.IsRemote())
						require.Empty(t, s.Links)
					}
					a := attributes(s)
					require.NotEqual(t, "0", a["messaging.message.id"])
					delete(a, "messaging.message.id")
					kind := map[bool]any{true: "panic"}[payload == "panics"]
					if payload == "again" && i == 0 {
						kind = "*pool.retryError"
					}
					require.Equal(t, kind, a["error.type"])
					delete(a, "error.type")
					attempt := i + 1
					if payload == "later" {
						attempt = 1
					}
					require.Equal(t, map[string]any{
						"messaging.system": "fairq", "messaging.operation.type": "process",
						"messaging.operation.name":   "process",
						"messaging.destination.name": "emails",
						"fairq.key":                  "a\uFFFD", "fairq.kind": "mail",
						"fairq.attempt": int64(attempt),
					}, a)
				}
			}
			require.NoError(t, p.Shutdown(context.Background()))
			require.NoError(t, tasks.Close(context.Background()))
		})
	}
}

// TestGlobals uses the globals of the program, which by default do nothing.
func TestGlobals(t *testing.T) {
	var tracing fairqotel.Tracing
	require.Nil(t, tracing.Inject(t.Context(), nil))
	given := map[string]string{"a": "b"}
	require.Equal(t, given, tracing.Inject(t.Context(), given))

	provider, spans := recorded()
	oldProvider, oldPropagator := otel.GetTracerProvider(), otel.GetTextMapPropagator()
	defer func() {
		otel.SetTracerProvider(oldProvider)
		otel.SetTextMapPropagator(oldPropagator)
	}()
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(w3c)
	require.Nil(t, tracing.Inject(t.Context(), nil), "there is no trace")
	ctx, span := provider.Tracer("test").Start(t.Context(), "submit")
	metadata := tracing.Inject(ctx, given)
	require.Len(t, metadata, 2)
	require.Len(t, given, 1)
	_, work := tracing.Start(t.Context(), "emails", &task.Info{ID: 7, Metadata: metadata})
	work.End()
	require.Equal(t, span.SpanContext().TraceID(), spans.GetSpans()[0].SpanContext.TraceID())
	require.Equal(t, "7", attributes(&spans.GetSpans()[0])["messaging.message.id"])

	// A task put again, as by a handler, has the current trace.
	again, _ := provider.Tracer("test").Start(t.Context(), "submit again")
	require.NotEqual(t, metadata["traceparent"], tracing.Inject(again, metadata)["traceparent"])

	// A trace that does not fit is left out, and the task can be put.
	full := map[string]string{"a": strings.Repeat("x", task.MaxMetadata-1)}
	require.Equal(t, full, tracing.Inject(ctx, full))
	errs := errors.New("no")
	h := fairqotel.Handler(tracing, "emails",
		func(context.Context, *task.Task[string]) error { return errs })
	require.Equal(t, errs, h(t.Context(), &task.Task[string]{}))
	require.Equal(t, []sdktrace.Event(nil), spans.GetSpans()[0].Events)
	require.NotEmpty(t, spans.GetSpans()[1].Events[0].Attributes)
	require.Contains(t, spans.GetSpans()[1].Attributes, attribute.String("fairq.key", ""))
}
