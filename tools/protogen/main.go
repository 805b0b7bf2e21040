// Command protogen turns one .proto file into Go: protocompile parses it, the generators of
// tools/go.mod write the code. No protoc is needed.
//
//	go -C tools run ./protogen ../daemon/peer/peerpb/peer.proto
//
// The output is written beside the file. An import is looked up beside it and in the directories of
// the modules that the file's own module requires.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// importModules are the modules whose .proto files ours may import, each with the directory inside.
var importModules = map[string]string{
	"go.etcd.io/raft/v3": "raftpb",
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protogen FILE.proto")
		os.Exit(64)
	}
	if err := generate(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, path string) error {
	dir, name := filepath.Split(path)
	dirs := []string{dir}
	for module, sub := range importModules {
		root, err := moduleDir(dir, module)
		if err != nil {
			return err
		}
		dirs = append(dirs, filepath.Join(root, sub))
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: dirs}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, name)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files[0], nil),
	}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		if err := run(plugin, request, dir); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// withImports appends file to list after everything it imports, each once.
func withImports(file protoreflect.FileDescriptor, list []*descriptorpb.FileDescriptorProto) []*descriptorpb.FileDescriptorProto {
	imports := file.Imports()
	for i := range imports.Len() {
		list = withImports(imports.Get(i).FileDescriptor, list)
	}
	for _, have := range list {
		if have.GetName() == file.Path() {
			return list
		}
	}
	return append(list, protoutil.ProtoFromFileDescriptor(file))
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest, dir string) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", plugin)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(in), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return fmt.Errorf("read its response of %d bytes: %w", len(out), err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// moduleDir asks the module that holds dir where it has another one.
func moduleDir(dir, module string) (string, error) {
	cmd := exec.Command("go", "-C", dir, "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
