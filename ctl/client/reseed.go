package client

import (
	"context"

	"github.com/tidaldb/tidal/daemon/api"
)

// Reseed asks for the checks of a reseed: req is a dry run. Errors as of Promote.
func (c *Client) Reseed(ctx context.Context, req api.ReseedRequest) (api.Reseeded, Source, error) {
	return change[api.Reseeded](ctx, c, "/cluster/reseed", req, req.OperationID)
}

// BeginReseed has a member's data replaced by that of another one, and does not wait for it. Errors as of
// Promote.
func (c *Client) BeginReseed(ctx context.Context, req api.ReseedRequest) (api.Operation, Source, error) {
	req.NoWait = true
	return change[api.Operation](ctx, c, "/cluster/reseed", req, req.OperationID)
}

// Verify has the members compare their states. It is safe to repeat. Errors as of Promote.
func (c *Client) Verify(ctx context.Context, req api.VerifyRequest) (api.Verified, Source, error) {
	return change[api.Verified](ctx, c, "/cluster/verify", req, "")
}

// ClearKept removes the replaced data that a member kept. Errors as of Promote.
func (c *Client) ClearKept(ctx context.Context, req api.ClearRequest) (api.Cleared, Source, error) {
	return change[api.Cleared](ctx, c, "/cluster/quarantine/clear", req, req.OperationID)
}
