package httpd

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tidaldb/tidal/daemon/api"
	"github.com/tidaldb/tidal/daemon/command"
	"github.com/tidaldb/tidal/daemon/entity"
	"github.com/tidaldb/tidal/daemon/ops"
)

// written is a write that is in the log, wherever it was put there.
type written struct {
	ops.Written
	member string // who did; empty: this one
}

// write puts the records of d into the log, through the leader, and says so in the header of the
// answer. Where nothing of the write was taken, that is the error.
func (s *Server) write(w http.ResponseWriter, r *request, d *decoder) (written, error) {
	ack, err := r.params.ack(s.opts.Ack)
	if err != nil {
		return written{}, err
	}
	key, err := idempotencyKey(r.Request)
	if err != nil {
		return written{}, err
	}
	data := d.out.Bytes()
	if key != "" {
		data = d.out.Keyed(command.HashKey(principal(r.Request), key))
	}
	res, err := s.writeThrough(r, ops.Write{Data: data, Ack: ack})
	h := w.Header()
	if _, said := err.(*api.Problem); res.member != "" && (err == nil || said) {
		h[api.HeaderMember] = []string{res.member} // the answer is that member's
	}
	if err != nil {
		return written{}, err
	}
	setReflected(h, res.ID.Term, res.ID.Index)
	if res.Denied != nil {
		return written{}, refused(*res.Denied)
	}
	h[api.HeaderAck] = []string{res.Ack}
	h[api.HeaderReplicatedTo] = []string{strconv.Itoa(res.Replicated)}
	if len(res.Pending) > 0 {
		h[api.HeaderPending] = []string{strings.Join(res.Pending, ",")}
	}
	return res, nil
}

// writeThrough puts a write into the log of the leader: here, or there.
func (s *Server) writeThrough(r *request, w ops.Write) (out written, err error) {
	err = s.lead(r, func() (err error) {
		out.Written, err = s.ops.Write(r.Context(), w)
		return err
	}, func(l ops.Leader) error {
		out.member = l.Name
		out.Written, err = s.gather.write(r.Context(), l, w)
		return err
	})
	return out, err
}

// single is write for a decoder with one record: what becomes of it is the answer.
func (s *Server) single(w http.ResponseWriter, r *request, d *decoder) (written, error) {
	res, err := s.write(w, r, d)
	if err == nil && len(res.Refused) > 0 {
		err = refused(res.Refused[0])
	}
	return res, err
}

// records is the handler of a route that takes one record or an array. single answers for one.
func (s *Server) records(read reader, single func(http.ResponseWriter, written) error) handler {
	return func(w http.ResponseWriter, r *request) error {
		d := &decoder{principal: principal(r.Request)}
		array, err := d.decodeRecords(r.body, read)
		if err != nil {
			return err
		}
		if array {
			res, err := s.write(w, r, d)
			if err != nil {
				return err
			}
			return writeJSON(w, http.StatusOK, writtenBody(res.Written, d.out.Count()))
		}
		res, err := s.single(w, r, d)
		if err != nil {
			return err
		}
		return single(w, res)
	}
}

// noContent answers for a record of which there is nothing to say but what the header says.
func noContent(w http.ResponseWriter, _ written) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// replaced answers for a record that makes or replaces something. Whether it made it is not known
// before it is applied.
func replaced(w http.ResponseWriter, res written) error {
	return writeJSON(w, replacedStatus(res.Written), writtenBody(res.Written, 1))
}

func replacedStatus(res ops.Written) int {
	switch {
	case res.Ack == api.AckLeader:
		return http.StatusAccepted
	case res.Created:
		return http.StatusCreated
	}
	return http.StatusOK
}

func writtenBody(res ops.Written, records int) api.Written {
	out := api.Written{
		Index: res.ID.Index, Term: res.ID.Term, Ack: res.Ack,
		ReplicatedTo: res.Replicated, Pending: append([]string{}, res.Pending...),
	}
	if res.Ack == api.AckLeader {
		return out
	}
	out.Accepted = new(records - len(res.Refused))
	out.Refused = make([]api.Refusal, 0, len(res.Refused))
	for _, r := range res.Refused {
		out.Refused = append(out.Refused, api.Refusal{Record: r.Record, Code: api.Code(r.Code), Detail: r.Detail})
	}
	return out
}

// refused makes the problem of what the state did not take.
func refused(r command.Refusal) error {
	p := api.NewProblem(api.Code(r.Code), r.Detail)
	if p.Code == api.CodeTooManyKeys { // the older half goes when the next period begins
		period := entity.KeyPeriod.Milliseconds()
		p.RetryAfterMS = period - time.Now().UnixMilli()%period
	}
	return p
}

func (s *Server) deleteItem(w http.ResponseWriter, r *request) error {
	id, collection, err := r.itemPath()
	if err != nil {
		return err
	}
	var d decoder
	d.out.Add(command.Delete{Collection: collection, ID: id})
	res, err := s.single(w, r, &d)
	if err != nil {
		return err
	}
	return noContent(w, res)
}

// itemPath returns the item that the path of a request is about, and its collection.
func (r *request) itemPath() (id, collection string, err error) {
	id = r.PathValue("id")
	if err := checkID("id", []byte(id)); err != nil {
		return "", "", err
	}
	collection, err = r.params.id("collection", api.DefaultCollection)
	return id, collection, err
}

func (s *Server) putCollection(w http.ResponseWriter, r *request) error {
	name := r.PathValue("name")
	if err := checkID("name", []byte(name)); err != nil {
		return err
	}
	if r.Header.Get("Idempotency-Key") != "" {
		return badField("Idempotency-Key", "declaring a collection takes none: to repeat it changes nothing")
	}
	schema, err := decodeSchema(r.body)
	if err != nil {
		return err
	}
	var d decoder
	d.out.Add(command.Collection{Name: name, Schema: schema})
	res, err := s.single(w, r, &d)
	if err != nil {
		return err
	}
	body := api.Declared{Name: name, Written: writtenBody(res.Written, 1)}
	if res.Version != 0 {
		body.Version = new(res.Version)
	}
	return writeJSON(w, replacedStatus(res.Written), body)
}

func (s *Server) getCollection(w http.ResponseWriter, r *request) error {
	name := r.PathValue("name")
	if err := checkID("name", []byte(name)); err != nil {
		return err
	}
	read, err := r.params.read()
	if err != nil {
		return err
	}
	c, ref, err := s.ops.Collection(r.Context(), name, read)
	if err != nil {
		return err
	}
	setReflected(w.Header(), ref.Term, ref.AppliedIndex)
	return writeJSON(w, http.StatusOK, c)
}

func (s *Server) getItem(w http.ResponseWriter, r *request) error {
	id, collection, err := r.itemPath()
	if err != nil {
		return err
	}
	read, err := r.params.read()
	if err != nil {
		return err
	}
	item, ref, err := s.ops.Item(r.Context(), collection, id, read)
	if err != nil {
		return err
	}
	setReflected(w.Header(), ref.Term, ref.AppliedIndex)
	return writeJSON(w, http.StatusOK, item)
}

func (s *Server) getFeed(w http.ResponseWriter, r *request) error {
	user, err := r.params.id("user", "")
	if err != nil {
		return err
	}
	collection, err := r.params.id("collection", api.DefaultCollection)
	if err != nil {
		return err
	}
	limit, err := r.params.uint("limit", api.DefaultFeedLimit, 1, api.MaxFeedLimit)
	if err != nil {
		return err
	}
	diversity, err := r.params.diversity()
	if err != nil {
		return err
	}
	read, err := r.params.read()
	if err != nil {
		return err
	}
	feed, ref, err := s.ops.Feed(r.Context(), ops.FeedRequest{
		Collection: collection, Limit: int(limit), User: user, Diversity: diversity, Read: read,
	})
	if err != nil {
		return err
	}
	setReflected(w.Header(), ref.Term, ref.AppliedIndex)
	return writeJSON(w, http.StatusOK, feed)
}

// writes takes gathered writes of another member, begins all in their order, and says what became of
// each.
func (s *Server) writes(w http.ResponseWriter, r *request) error {
	if !r.marked {
		return api.NewProblem(api.CodeNoRoute, "there is no route "+quoted(r.RequestURI))
	}
	batch, err := decodeWrites(r.body)
	if err != nil {
		return badField("", "%v", err)
	}
	waits := make([]func() (ops.Written, error), len(batch))
	results := make([]result, len(batch))
	for i, b := range batch {
		if err := command.CheckWrite(b.Data); err != nil {
			return badField("", "write %d: %v", i, err)
		}
		waits[i], results[i].err = s.ops.Begin(r.Context(), b)
	}
	for i, wait := range waits {
		if wait != nil {
			results[i].Written, results[i].err = wait()
		}
	}
	var b []byte
	b = appendResults(b, results)
	w.Header()["Content-Type"] = []string{"application/octet-stream"}
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(b) // an error means that the caller is gone
	return nil
}
