package client

import (
	"context"
	"net/url"

	"github.com/tidaldb/tidal/daemon/api"
)

// ChangeMember promotes, removes or replaces a member, as verb says. It is sent to one endpoint after the
// other as long as certainly nothing was begun. Errors: *ProblemError, *UnreachableError, *LostError with
// req.OperationID.
func (c *Client) ChangeMember(ctx context.Context, verb string, req api.MemberRequest) (api.MemberChanged, Source, error) {
	return change[api.MemberChanged](ctx, c, "/cluster/members/"+verb, req, req.OperationID)
}

// BeginChangeMember is ChangeMember without waiting for its end.
func (c *Client) BeginChangeMember(ctx context.Context, verb string, req api.MemberRequest) (api.Operation, Source, error) {
	req.NoWait = true
	return change[api.Operation](ctx, c, "/cluster/members/"+verb, req, req.OperationID)
}

// Invite tells a member that belongs to no cluster yet whom to ask. It may be repeated.
func (c *Client) Invite(ctx context.Context, req api.SeedRequest) (api.Seeded, Source, error) {
	return change[api.Seeded](ctx, c, "/cluster/seeds", req, "")
}

// LocalStatus reads what a member says of itself.
func (c *Client) LocalStatus(ctx context.Context) (api.LocalStatus, Source, error) {
	return get[api.LocalStatus](ctx, c, "/cluster/status/local")
}

// Why reads which gates hold a member back.
func (c *Client) Why(ctx context.Context, name string) (api.Why, Source, error) {
	return get[api.Why](ctx, c, "/cluster/why/"+url.PathEscape(name))
}

// History reads the changes of leadership and membership that the members remember.
func (c *Client) History(ctx context.Context) (api.History, Source, error) {
	return get[api.History](ctx, c, "/cluster/history")
}
