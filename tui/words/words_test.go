package words_test

import (
	"testing"
	"time"

	"github.com/tidaldb/tidal/tui/words"
)

func TestAge_TwoUnits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   time.Duration
		want string
	}{
		{0, "<1ms"}, {999 * time.Microsecond, "<1ms"}, {-time.Second, "<1ms"}, {time.Millisecond, "1ms"}, {999 * time.Millisecond, "999ms"},
		{time.Second, "1.0s"}, {1290 * time.Millisecond, "1.2s"}, {9999 * time.Millisecond, "9.9s"}, {10 * time.Second, "10s"},
		{134 * time.Second, "2m14s"}, {185 * time.Minute, "3h5m"}, {98*time.Hour + 30*time.Minute, "4d2h"},
	} {
		if got := words.Age(tc.in); got != tc.want {
			t.Errorf("Age(%v) = %s, want %s", tc.in, got, tc.want)
		}
	}
}

func TestCount_Thousands(t *testing.T) {
	t.Parallel()
	for in, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", 1<<64 - 1: "18,446,744,073,709,551,615"} {
		if got := words.Count(in); got != want {
			t.Errorf("Count(%d) = %s, want %s", in, got, want)
		}
	}
}

func FuzzClean(f *testing.F) {
	f.Add("us-east", true)
	f.Add("\x1b]0;owned\x07", false)
	f.Add("m\u00fcde \u202e\xff", false)
	f.Fuzz(func(t *testing.T, s string, ascii bool) {
		got := words.Clean(s, ascii)
		for _, r := range got {
			if r < ' ' || r == 0x7f || ascii && r > 0x7e {
				t.Errorf("Clean(%q, %t) = %q: %q gets through", s, ascii, got, r)
			}
		}
		if again := words.Clean(got, ascii); again != got {
			t.Errorf("Clean twice of %q: %q then %q", s, got, again)
		}
	})
}
