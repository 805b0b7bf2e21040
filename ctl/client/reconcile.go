package client

import (
	"context"

	"github.com/tidaldb/tidal/daemon/api"
)

// Reconcile has a member exchange outboxes with another one. It is sent as Promote is, with the same
// errors.
func (c *Client) Reconcile(ctx context.Context, req api.ReconcileRequest) (api.Reconciled, Source, error) {
	return change[api.Reconciled](ctx, c, "/cluster/reconcile", req, req.OperationID)
}
