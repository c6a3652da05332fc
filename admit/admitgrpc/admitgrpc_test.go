package admitgrpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairq/fairq/admit"
	"github.com/fairq/fairq/admit/admitgrpc"
)

func tenant(ctx context.Context, _ string) string {
	md, _ := metadata.FromIncomingContext(ctx)
	if names := md.Get("tenant"); len(names) > 0 {
		return names[0]
	}
	return ""
}

// weight makes a tenant without a name an error.
func weight(tenant string) int { return len(tenant) }

func dial(t *testing.T, l *admit.Limiter[string]) healthpb.HealthClient {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.UnaryInterceptor(admitgrpc.Unary(l, tenant)),
		grpc.StreamInterceptor(admitgrpc.Stream(l, tenant)))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func TestInterceptors(t *testing.T) {
	l := admit.New(1, &admit.Options[string]{MaxWaiting: 1, Weight: weight})
	client := dial(t, l)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "tenant", "a")
	_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Zero(t, l.Stats().Held)
	_, err = client.Check(t.Context(), &healthpb.HealthCheckRequest{})
	require.Equal(t, codes.Internal, status.Code(err))

	// A stream holds the permit, one call waits, and the next is refused.
	streaming, stop := context.WithCancel(ctx)
	stream, err := client.Watch(streaming, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	waiting, leave := context.WithCancel(ctx)
	left := make(chan error)
	go func() {
		_, err := client.Check(waiting, &healthpb.HealthCheckRequest{})
		left <- err
	}()
	until(t, func() bool { return l.Stats().Waiting == 1 })
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	details := status.Convert(err).Details()
	require.Len(t, details, 1)
	require.GreaterOrEqual(t, details[0].(*errdetails.RetryInfo).RetryDelay.AsDuration(), time.Second)
	leave()
	require.Equal(t, codes.Canceled, status.Code(<-left))
	until(t, func() bool { return l.Stats().Waiting == 0 })
	stop()
	until(t, func() bool { return l.Stats().Held == 0 })

	l.Close()
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{})
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Empty(t, status.Convert(err).Details())
	again, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = again.Recv()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Panics(t, func() { admitgrpc.Unary(l, nil) })
	require.Panics(t, func() { admitgrpc.Stream(nil, tenant) })
}

func until(t *testing.T, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, time.Millisecond)
}
