package config

import "testing"

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want size
		back string
	}{
		{"0", 0, "0"}, {"1B", 1, "1B"}, {"1536B", 1536, "1536B"}, {"64 KiB", 64 << 10, "64KiB"}, {"1024KiB", 1 << 20, "1MiB"}, {"4GiB", 4 << 30, "4GiB"}, {"2TiB", 2 << 40, "2TiB"},
	} {
		got, err := parseSize(c.text)
		if err != nil || got != c.want || got.String() != c.back {
			t.Errorf("parseSize(%q) = %d (%s), %v, want %d (%s)", c.text, got, got, err, c.want, c.back)
		}
	}
	for _, text := range []string{"", "1", "KiB", "-1KiB", "1.5GiB", "1kb", "99999999999TiB", "0x10B"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestParse_TheCapOfAPinIsAboveWhatIsKept(t *testing.T) {
	_, err := Parse("t.yaml", []byte("members:\n  - {name: a, grpc_addr: '127.0.0.1:1', http_addr: '127.0.0.1:2'}\nreplication: {log_keep: 2MiB, pin_cap: 1MiB}\n"), Flags{}, none)
	e, ok := err.(*InvalidError)
	if !ok || len(e.Problems) != 1 || e.Problems[0].Key != "replication.pin_cap" || e.Problems[0].Line != 3 {
		t.Errorf("Parse = %v, want one problem with replication.pin_cap on line 3", err)
	}
}
