package member

import "testing"

// The leader is asked first, then everybody in turn, the leader too, for as long as nobody has anything.
func TestOtherTurn(t *testing.T) {
	const leader = -1
	for others, want := range map[int][]int{
		0: {leader, leader, leader, leader},
		1: {leader, leader, 0, leader, 0, leader},
		2: {leader, leader, 0, 1, leader, 0, 1, leader},
	} {
		for stuck, want := range want {
			got, ok := otherTurn(stuck, others)
			if !ok {
				got = leader
			}
			if got != want {
				t.Errorf("after %d attempts, with %d others: %d, want %d", stuck, others, got, want)
			}
		}
	}
}
