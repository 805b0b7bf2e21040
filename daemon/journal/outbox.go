package journal

import "fmt"

// Reconciled says what an exchange of outboxes brought, that was begun here.
type Reconciled struct {
	Name  string `json:"name"`  // of the other member
	Here  int    `json:"here"`  // operations that were new here
	There int    `json:"there"` // and there
}

func (Reconciled) Kind() Kind { return KindReconciled }
func (f Reconciled) Text() string {
	return fmt.Sprintf("reconciled with %s: %d operations came, %d went", f.Name, f.Here, f.There)
}
func (Reconciled) Same() string { return "" }
