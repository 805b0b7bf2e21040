package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/raft/v3"

	"github.com/tidaldb/tidal/daemon/ident"
)

// metrics are the replica's numbers. The label group is bounded by the groups of the cluster.
type metrics struct {
	proposals    prometheus.Counter
	batchWrites  prometheus.Histogram
	batchBytes   prometheus.Histogram
	applySeconds prometheus.Histogram
	applyEntries prometheus.Histogram
	dropped      prometheus.Counter
	refused      prometheus.Counter
	noRoom       prometheus.Counter

	unregister func() // so that the group can be opened again
}

func newMetrics(reg prometheus.Registerer, group ident.GroupID, r *Replica) *metrics {
	labels := prometheus.Labels{"group": group.String()}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets, ConstLabels: labels})
	}
	gauge := func(name, help string, value func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return value(r.Status()) })
	}
	m := &metrics{
		proposals: counter("tidal_replica_proposals_total", "Entries proposed here."),
		batchWrites: histogram("tidal_replica_batch_writes", "Client writes in one entry.",
			prometheus.ExponentialBuckets(1, 2, 12)), // to 2048
		batchBytes: histogram("tidal_replica_batch_bytes", "Payload of one entry of client writes.",
			prometheus.ExponentialBuckets(64, 4, 8)), // to 1 MiB
		applySeconds: histogram("tidal_replica_apply_seconds", "Time to put one run of entries into state.",
			prometheus.ExponentialBuckets(2e-5, 2, 16)), // 20 us to 0.65 s
		applyEntries: histogram("tidal_replica_apply_entries", "Entries in one run.",
			prometheus.ExponentialBuckets(1, 2, 12)), // to 2048
		dropped: counter("tidal_replica_receive_dropped_total", "Peer messages dropped because too many waited."),
		refused: counter("tidal_replica_receive_refused_total", "Peer messages that broke the protocol."),
		noRoom:  counter("tidal_replica_receive_no_room_total", "Messages with entries dropped because the disk is full."),
	}
	all := []prometheus.Collector{
		m.proposals, m.batchWrites, m.batchBytes, m.applySeconds, m.applyEntries, m.dropped, m.refused, m.noRoom,
		gauge("tidal_replica_queue_bytes", "Client writes admitted and not proposed.",
			func(s Status) float64 { return float64(s.QueueBytes) }),
		gauge("tidal_replica_term", "Raft term.", func(s Status) float64 { return float64(s.Term) }),
		gauge("tidal_replica_is_leader", "1 while this replica leads its group.",
			func(s Status) float64 { return truth(s.State == raft.StateLeader) }),
		gauge("tidal_replica_durable_index", "Highest index durable in the log.",
			func(s Status) float64 { return float64(s.Durable) }),
		gauge("tidal_replica_commit_index", "Highest index known to be committed.",
			func(s Status) float64 { return float64(s.Commit) }),
		gauge("tidal_replica_applied_index", "Highest index in state.",
			func(s Status) float64 { return float64(s.Applied) }),
		gauge("tidal_replica_failed", "1 after the replica failed closed.",
			func(s Status) float64 { return truth(s.Failed != nil || s.Stateless != nil) }),
	}
	m.unregister = func() {}
	if reg != nil {
		reg.MustRegister(all...)
		m.unregister = func() {
			for _, c := range all {
				reg.Unregister(c)
			}
		}
	}
	return m
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
