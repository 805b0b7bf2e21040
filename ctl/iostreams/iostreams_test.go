package iostreams_test

import (
	"testing"

	"github.com/tidaldb/tidal/ctl/iostreams"
)

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestUseColor_Order(t *testing.T) {
	t.Parallel()
	type vars = map[string]string
	for _, tc := range []struct {
		name string
		flag string
		vars vars
		tty  bool
		want bool
	}{
		{name: "terminal", flag: "auto", tty: true, want: true},
		{name: "pipe", flag: "auto", want: false},
		{name: "always beats NO_COLOR", flag: "always", vars: vars{"NO_COLOR": "1"}, want: true},
		{name: "never beats FORCE_COLOR", flag: "never", vars: vars{"FORCE_COLOR": "1"}, tty: true, want: false},
		{name: "NO_COLOR=yes", flag: "auto", vars: vars{"NO_COLOR": "yes"}, tty: true, want: false},
		{name: "NO_COLOR=0 is set", flag: "auto", vars: vars{"NO_COLOR": "0"}, tty: true, want: false},
		{name: "NO_COLOR empty", flag: "auto", vars: vars{"NO_COLOR": ""}, tty: true, want: true},
		{name: "NO_COLOR beats FORCE_COLOR", flag: "auto", vars: vars{"NO_COLOR": "1", "FORCE_COLOR": "1"}, want: false},
		{name: "FORCE_COLOR on a pipe", flag: "auto", vars: vars{"FORCE_COLOR": "1"}, want: true},
		{name: "FORCE_COLOR=0", flag: "auto", vars: vars{"FORCE_COLOR": "0"}, tty: true, want: false},
		{name: "FORCE_COLOR=false", flag: "auto", vars: vars{"FORCE_COLOR": "false"}, tty: true, want: false},
		{name: "CLICOLOR_FORCE", flag: "auto", vars: vars{"CLICOLOR_FORCE": "1"}, want: true},
		{name: "CLICOLOR=0", flag: "auto", vars: vars{"CLICOLOR": "0"}, tty: true, want: false},
		{name: "dumb terminal", flag: "auto", vars: vars{"TERM": "dumb"}, tty: true, want: false},
		{name: "forced on a dumb terminal", flag: "auto", vars: vars{"TERM": "dumb", "FORCE_COLOR": "1"}, tty: true, want: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := iostreams.UseColor(tc.flag, env(tc.vars), tc.tty); got != tc.want {
				t.Errorf("UseColor(%q, %v, %t) = %t, want %t", tc.flag, tc.vars, tc.tty, got, tc.want)
			}
		})
	}
}

func TestUseASCII_Locales(t *testing.T) {
	t.Parallel()
	type vars = map[string]string
	for _, tc := range []struct {
		name string
		flag bool
		vars vars
		want bool
	}{
		{name: "UTF-8", vars: vars{"LANG": "en_GB.UTF-8"}, want: false},
		{name: "utf8 with modifier", vars: vars{"LANG": "de_DE.utf8@euro"}, want: false},
		{name: "C.UTF-8", vars: vars{"LC_ALL": "C.UTF-8"}, want: false},
		{name: "asked for", flag: true, vars: vars{"LANG": "en_GB.UTF-8"}, want: true},
		{name: "nothing set", want: true},
		{name: "POSIX", vars: vars{"LANG": "POSIX"}, want: true},
		{name: "latin1", vars: vars{"LANG": "de_DE.ISO-8859-1"}, want: true},
		{name: "Japanese", vars: vars{"LANG": "ja_JP.UTF-8"}, want: true},
		{name: "LC_ALL wins", vars: vars{"LC_ALL": "C", "LANG": "en_GB.UTF-8"}, want: true},
		{name: "LC_CTYPE before LANG", vars: vars{"LC_CTYPE": "en_GB.UTF-8", "LANG": "C"}, want: false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if got := iostreams.UseASCII(tc.flag, env(tc.vars)); got != tc.want {
				t.Errorf("UseASCII(%t, %v) = %t, want %t", tc.flag, tc.vars, got, tc.want)
			}
		})
	}
}
