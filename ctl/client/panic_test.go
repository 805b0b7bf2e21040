package client_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tidaldb/tidal/ctl/client"
)

// A panic in a goroutine of the client reaches its caller, with the stack of where it was: left alone
// it would end the process, and a terminal would stay as it is.
func TestStatus_CarriesAPanicToItsCaller(t *testing.T) {
	c, err := client.New(client.Options{
		Endpoints: []string{"http://a:1", "http://b:1"},
		Transport: network{"a": func(*http.Request) (*http.Response, error) { panic("boom") }, "b": hung},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		carried, ok := recover().(interface {
			error
			Stack() []byte
		})
		if !ok || carried.Error() != "boom" || !strings.Contains(string(carried.Stack()), "panic_test.go") {
			t.Errorf("recovered %v", carried)
		}
	}()
	c.Status(t.Context())
	t.Error("the panic was swallowed")
}
