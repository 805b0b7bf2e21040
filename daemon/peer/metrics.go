package peer

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidaldb/tidal/daemon/ident"
)

// metrics of all links. The label peer is a member id, bounded by the roster; all others are enums.
type metrics struct {
	connected        *prometheus.GaugeVec
	rtt              *prometheus.GaugeVec
	skew             *prometheus.GaugeVec
	sentMessages     *prometheus.CounterVec
	sentBytes        *prometheus.CounterVec
	sentFrames       *prometheus.CounterVec
	sendDropped      *prometheus.CounterVec
	receivedMessages prometheus.Counter
	receivedFrames   prometheus.Counter
	receiveDropped   *prometheus.CounterVec
	failures         *prometheus.CounterVec
	refusals         *prometheus.CounterVec
	duplicates       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		connected:      gauges("tidal_peer_connected", "1 while the stream to the peer is open.", "peer"),
		rtt:            gauges("tidal_peer_rtt_seconds", "Round trip of the last ping to the peer.", "peer"),
		skew:           gauges("tidal_peer_clock_skew_seconds", "How far the peer's clock is ahead of this member's, by the last ping.", "peer"),
		sentMessages:   counters("tidal_peer_sent_messages_total", "Raft messages written to the peer's stream.", "peer"),
		sentBytes:      counters("tidal_peer_sent_bytes_total", "Estimated bytes of raft messages written to the peer's stream.", "peer"),
		sentFrames:     counters("tidal_peer_sent_frames_total", "Frames that carried raft messages to the peer.", "peer"),
		sendDropped:    counters("tidal_peer_send_dropped_total", "Raft messages that were not sent to the peer, by reason.", "peer", "reason"),
		receiveDropped: counters("tidal_peer_receive_dropped_total", "Raft messages or frames that arrived and were dropped, by reason.", "reason"),
		failures:       counters("tidal_peer_failures_total", "Failed attempts to reach the peer and broken streams, by failure.", "peer", "failure"),
		refusals:       counters("tidal_peer_refusals_total", "Refused handshakes, given by this member or received from a peer, by reason.", "side", "reason"),
		duplicates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_peer_duplicate_identities_total", Help: "Times that two processes with the identity of one member were alive at once; both are refused."}),
		receivedMessages: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_peer_received_messages_total", Help: "Raft messages that arrived from peers."}),
		receivedFrames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidal_peer_received_frames_total", Help: "Frames that arrived from peers."}),
	}
	if reg != nil {
		reg.MustRegister(m.connected, m.rtt, m.skew, m.duplicates, m.sentMessages, m.sentBytes, m.sentFrames, m.sendDropped,
			m.receivedMessages, m.receivedFrames, m.receiveDropped, m.failures, m.refusals)
	}
	return m
}

func (m *metrics) sent(peer string, messages int, bytes int64) {
	m.sentFrames.WithLabelValues(peer).Inc()
	m.sentMessages.WithLabelValues(peer).Add(float64(messages))
	m.sentBytes.WithLabelValues(peer).Add(float64(bytes))
}

func (m *metrics) dropped(peer, reason string, n int) {
	m.sendDropped.WithLabelValues(peer, reason).Add(float64(n))
}

// forget removes the series of a member that left.
func (m *metrics) forget(id ident.MemberID) {
	peer := prometheus.Labels{"peer": id.String()}
	m.connected.DeletePartialMatch(peer)
	m.rtt.DeletePartialMatch(peer)
	m.skew.DeletePartialMatch(peer)
	m.sentMessages.DeletePartialMatch(peer)
	m.sentBytes.DeletePartialMatch(peer)
	m.sentFrames.DeletePartialMatch(peer)
	m.sendDropped.DeletePartialMatch(peer)
	m.failures.DeletePartialMatch(peer)
}
