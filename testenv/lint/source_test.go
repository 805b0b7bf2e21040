package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/tidaldb/tidal/"

// root is the module's directory, seen from this package.
const root = "../.."

type pkg struct {
	path  string // relative to the module: "daemon/wal"
	files []file
}

type file struct {
	name      string // relative to the module
	test      bool
	generated bool
	imports   []string
	syntax    *ast.File
	fset      *token.FileSet
}

// ours are the imported packages of this module, relative to it.
func (f file) ours() []string {
	var paths []string
	for _, imp := range f.imports {
		if rest, ok := strings.CutPrefix(imp, module); ok {
			paths = append(paths, rest)
		}
	}
	return paths
}

func (f file) at(n ast.Node) string {
	return f.name + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// packages parses every package of the module, tools and test data apart.
func packages(t *testing.T) []pkg {
	t.Helper()
	var pkgs []pkg
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.IsDir() {
			return nil
		}
		if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "dist") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != root {
			return fs.SkipDir // a module of its own
		}
		p, err := parseDir(path)
		if err == nil && len(p.files) > 0 {
			pkgs = append(pkgs, p)
		}
		return err
	})
	if err != nil {
		t.Fatalf("read the source: %v", err)
	}
	return pkgs
}

func parseDir(dir string) (pkg, error) {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return pkg{}, err
	}
	p := pkg{path: filepath.ToSlash(rel)}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return pkg{}, err
	}
	for _, name := range names {
		fset := token.NewFileSet()
		syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return pkg{}, err
		}
		f := file{
			name: p.path + "/" + filepath.Base(name), test: strings.HasSuffix(name, "_test.go"),
			generated: ast.IsGenerated(syntax), syntax: syntax, fset: fset,
		}
		for _, imp := range syntax.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return pkg{}, err
			}
			f.imports = append(f.imports, path)
		}
		p.files = append(p.files, f)
	}
	return p, nil
}
