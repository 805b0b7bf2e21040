// Package sim runs a cluster of real consensus machines on one thread, from a seed.
//
// Time is virtual and an event heap decides what happens next, so a seed is the whole of a run: the
// same seed gives the same events, the same rolling hash and the same failure. Members exchange
// bytes. What is modelled is what the machines ask for: a log that loses unsynced frames in a crash
// (any prefix of them survives), a state that is flushed when it pleases, append and apply workers
// with latencies, and a network that delays, drops, doubles, reorders and splits.
//
// A run has two phases. In the first, faults overlap while clients write, read and move leadership.
// Then everything is healed, and the cluster must elect a leader and agree. Oracles watch all along;
// each is written where it looks:
//
//   - one leader a term; an (index, term) names one entry; an applied index has one state (oracle.go);
//   - an acknowledged write is applied exactly once, a failed one never, one with an unknown outcome
//     at most once; a linearizable read is never below a write acknowledged before it (client.go);
//   - no vote, append response or acknowledgement before what it rests on is durable (member.go);
//   - after the faults, a leader in time and all members equal (sim.go).
//
// raft draws its election jitter from crypto/rand. A test that wants a run to repeat calls
// cryptotest.SetGlobalRandom with the seed first; that is process-global, so runs of one process go
// one after the other.
package sim
