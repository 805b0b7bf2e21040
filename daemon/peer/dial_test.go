package peer

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidaldb/tidal/daemon/reach"
)

// What gRPC says of its transport is put in our words; what the other side said stays.
func TestWorded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		code reach.Code
		want string
	}{
		{status.Error(codes.Unavailable, "keepalive ping failed to receive ACK within timeout"), reach.Timeout, "it does not answer a ping"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), reach.Lost, "the connection broke"},
		{status.Error(codes.Unavailable, "this member stops"), reach.Other, "this member stops"},
		{status.Error(codes.DeadlineExceeded, "context deadline exceeded"), reach.Timeout, "nothing came in time"},
		{status.Error(codes.InvalidArgument, "no such group"), reach.Other, "no such group"},
		{context.DeadlineExceeded, reach.Timeout, "nothing came in time"},
		{io.EOF, reach.Lost, "the connection broke"},
	} {
		err := worded(tc.err)
		if code, words := reach.Why(err); code != tc.code || words != tc.want || err.Error() != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("worded(%v) = %s %q, want %s %q above it", tc.err, code, err, tc.code, tc.want)
		}
	}
}
