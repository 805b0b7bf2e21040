package lint

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Every package says what it is, why, and who may rely on what.
func TestPackages_AreDocumented(t *testing.T) {
	const least = 60 // characters: less says nothing
	for _, p := range packages(t) {
		var doc string
		onlyTests := true
		for _, f := range p.files {
			if f.syntax.Doc != nil && !f.generated {
				doc += f.syntax.Doc.Text()
			}
			onlyTests = onlyTests && f.test
		}
		if !onlyTests && len(doc) < least && !allGenerated(p) && !isMain(p) {
			t.Errorf("%s has a package comment of %d characters, want at least %d", p.path, len(doc), least)
		}
	}
}

// isMain reports whether p is a program: its help is its document.
func isMain(p pkg) bool { return p.files[0].syntax.Name.Name == "main" }

func allGenerated(p pkg) bool {
	return !slices.ContainsFunc(p.files, func(f file) bool { return !f.generated })
}

// A test that sleeps is slow or flaky, usually both. Inside a synctest bubble time is fake.
func TestTests_DoNotSleep(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.test && slices.Contains(f.imports, "testing/synctest") {
				continue
			}
			calls(f, func(call *ast.CallExpr, name string) {
				if name == "time.Sleep" {
					t.Errorf("%s calls time.Sleep", f.at(call))
				}
			})
		}
	}
}

// pure are the packages whose decisions depend on their inputs alone.
var pure = []string{"daemon/consensus", "daemon/membership", "daemon/entity", "daemon/command", "daemon/apply", "daemon/query", "tui/view", "tui/viewmodel", "tui/theme"}

func TestPurePackages_StayPure(t *testing.T) {
	forbidden := []string{"time.Now", "time.Since", "time.Until", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick", "os.Getenv", "os.ReadFile"}
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.path) {
			continue
		}
		for _, f := range p.files {
			if f.test || strings.Contains(f.name, "/mutant_") { // a known bug may be an impure one
				continue
			}
			for _, imp := range f.imports {
				if strings.HasPrefix(imp, "math/rand") || imp == "crypto/rand" {
					t.Errorf("%s imports %s", f.name, imp)
				}
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					t.Errorf("%s starts a goroutine", f.at(g))
				}
				return true
			})
			calls(f, func(call *ast.CallExpr, name string) {
				if slices.Contains(forbidden, name) {
					t.Errorf("%s calls %s", f.at(call), name)
				}
			})
		}
	}
}

// Importing is not doing: no init functions, and no package-level variable that is assigned later.
func TestPackages_HaveNoInit(t *testing.T) {
	for _, p := range packages(t) {
		for _, f := range p.files {
			if f.generated {
				continue
			}
			for _, d := range f.syntax.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					t.Errorf("%s is an init function", f.at(fn))
				}
			}
		}
	}
}

func TestPackages_AssignNoGlobals(t *testing.T) {
	for _, p := range packages(t) {
		globals := map[string]bool{}
		for _, f := range p.files {
			for _, d := range f.syntax.Decls {
				if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR && !f.generated && !f.test {
					for _, s := range g.Specs {
						for _, name := range s.(*ast.ValueSpec).Names {
							globals[name.Name] = name.Name != "_"
						}
					}
				}
			}
		}
		for _, f := range p.files {
			if f.generated || p.path == "cmd/tidald" || p.path == "cmd/tidalctl" { // the linker sets the version there
				continue
			}
			ast.Inspect(f.syntax, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.ASSIGN {
					for _, l := range a.Lhs {
						if id, ok := l.(*ast.Ident); ok && globals[id.Name] && !shadowed(f, id) {
							t.Errorf("%s assigns the package variable %s", f.at(a), id.Name)
						}
					}
				}
				return true
			})
		}
	}
}

// shadowed reports whether the function around id declares a name of its own that hides the global.
func shadowed(f file, id *ast.Ident) bool {
	hidden := false
	for _, d := range f.syntax.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || id.Pos() < fn.Pos() || id.Pos() > fn.End() {
			continue
		}
		ast.Inspect(fn, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, l := range n.Lhs {
						if x, ok := l.(*ast.Ident); ok && x.Name == id.Name {
							hidden = true
						}
					}
				}
			case *ast.Field:
				for _, x := range n.Names {
					hidden = hidden || x.Name == id.Name
				}
			case *ast.ValueSpec:
				for _, x := range n.Names {
					hidden = hidden || x.Name == id.Name
				}
			}
			return true
		})
	}
	return hidden
}

// calls visits every call of a package's function, named as "package.Function".
func calls(f file, visit func(call *ast.CallExpr, name string)) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				visit(call, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
}
