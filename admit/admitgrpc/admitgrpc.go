// Package admitgrpc has interceptors for gRPC servers that let calls wait for a permit of an
// admit.Limiter, which is fair between keys.
package admitgrpc

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/fairq/fairq/admit"
)

// Unary returns an interceptor that handles each call with a permit for its key, which is held
// until the handler returns or panics. key is called with the context of the call and the full
// name of the method, such as /package.Service/Method. A call whose client goes away, or whose
// deadline is over, leaves the line.
//
// A call is refused with the code
//
//   - ResourceExhausted, and a RetryInfo from [admit.Limiter.RetryAfter], if too many calls wait;
//   - Unavailable if the Limiter is closed;
//   - Internal if the weight of its key is out of range.
//
// Unary panics if the Limiter or the key function is nil.
func Unary[K comparable](l *admit.Limiter[K],
	key func(ctx context.Context, method string) K,
) grpc.UnaryServerInterceptor {
	check(l, key)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo,
		next grpc.UnaryHandler,
	) (any, error) {
		p, err := l.Acquire(ctx, key(ctx, info.FullMethod))
		if err != nil {
			return nil, refusal(l, err)
		}
		defer p.Release()
		return next(ctx, req)
	}
}

// Stream is [Unary] for streams: the permit is held as long as the stream.
func Stream[K comparable](l *admit.Limiter[K],
	key func(ctx context.Context, method string) K,
) grpc.StreamServerInterceptor {
	check(l, key)
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo,
		next grpc.StreamHandler,
	) error {
		p, err := l.Acquire(s.Context(), key(s.Context(), info.FullMethod))
		if err != nil {
			return refusal(l, err)
		}
		defer p.Release()
		return next(srv, s)
	}
}

func check[K comparable](l *admit.Limiter[K], key func(context.Context, string) K) {
	switch {
	case l == nil:
		panic("admitgrpc: the Limiter is nil")
	case key == nil:
		panic("admitgrpc: the key function is nil")
	}
}

// refusal returns the status for an error of Acquire.
func refusal[K comparable](l *admit.Limiter[K], err error) error {
	switch {
	case errors.Is(err, admit.ErrFull):
	case errors.Is(err, admit.ErrClosed):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, admit.ErrWeight):
		return status.Error(codes.Internal, err.Error())
	default: // of the context
		return status.FromContextError(err).Err()
	}
	s := status.New(codes.ResourceExhausted, err.Error())
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(l.RetryAfter(err))}
	if detailed, err := s.WithDetails(retry); err == nil {
		s = detailed
	}
	return s.Err()
}
