package docs_test

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
)

// These are the links of doc comments to a name of the same package, and to one of another.
var (
	linkHere  = regexp.MustCompile(`\[\*?([A-Z]\w*)(?:\.(\w+))?\](?:[^(:]|$)`)
	linkThere = regexp.MustCompile(`\[\*?([a-z][a-z0-9]*)\.([A-Z]\w*)(?:\.(\w+))?\]`)
)

// A declaration is what a package declares: its names, and the fields and methods of its types.
type declaration map[string]map[string]bool

func (d declaration) add(name, member string) {
	if d[name] == nil {
		d[name] = map[string]bool{}
	}
	d[name][member] = true
}

// has reports whether a link to the name, or to a member of it, leads somewhere. What a type has from a type that it embeds counts
// as its own, and all members do if that type is of another package.
func (d declaration) has(name, member string) bool {
	members := d[name]
	if member == "" || members == nil || members[member] || members[elsewhere] {
		return members != nil
	}
	for one := range members {
		if base, ok := strings.CutPrefix(one, embeds); ok && base != name && d.has(base, member) {
			return true
		}
	}
	return false
}

// These mark types that a type embeds.
const (
	embeds    = "embeds "
	elsewhere = "embeds a type of another package"
)

// read adds what a file declares.
func (d declaration) read(file *ast.File) {
	for _, decl := range file.Decls {
		switch x := decl.(type) {
		case *ast.FuncDecl:
			if x.Recv == nil {
				d.add(x.Name.Name, "")
			} else {
				d.add(baseOf(x.Recv.List[0].Type), x.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range x.Specs {
				switch s := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						d.add(name.Name, "")
					}
				case *ast.TypeSpec:
					d.add(s.Name.Name, "")
					d.addMembers(s.Name.Name, s.Type)
				}
			}
		}
	}
}

func (d declaration) addMembers(name string, of ast.Expr) {
	var fields *ast.FieldList
	switch x := of.(type) {
	case *ast.StructType:
		fields = x.Fields
	case *ast.InterfaceType:
		fields = x.Methods
	default:
		d.addEmbedded(name, of)
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			d.add(name, n.Name)
		}
		if len(f.Names) == 0 {
			d.add(name, baseOf(f.Type))
			d.addEmbedded(name, f.Type)
		}
	}
}

func (d declaration) addEmbedded(name string, of ast.Expr) {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if _, ok := of.(*ast.SelectorExpr); ok {
		d.add(name, elsewhere)
		return
	}
	d.add(name, embeds+baseOf(of))
}

// baseOf returns the name of a type without its package, pointers and parameters.
func baseOf(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.StarExpr:
		return baseOf(x.X)
	case *ast.SelectorExpr:
		return x.Sel.Name
	case *ast.IndexExpr:
		return baseOf(x.X)
	case *ast.IndexListExpr:
		return baseOf(x.X)
	}
	return ""
}

// TestLinksOfCommentsLeadSomewhere finds links of doc comments to names that no longer exist.
func TestLinksOfCommentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	files, declared := token.NewFileSet(), map[string]declaration{} // by folder
	parsed, named := map[string][]*ast.File{}, map[string][]string{}
	eachFile(t, files, func(dir string, file *ast.File) {
		if declared[dir] == nil {
			declared[dir] = declaration{}
			named[file.Name.Name] = append(named[file.Name.Name], dir)
		}
		declared[dir].read(file)
		parsed[dir] = append(parsed[dir], file)
	})
	links := 0
	for dir, list := range parsed {
		for _, file := range list {
			for _, group := range file.Comments {
				for _, l := range linkHere.FindAllStringSubmatch(group.Text(), -1) {
					links++
					if !declared[dir].has(l[1], l[2]) {
						t.Errorf("%s: no %s here; link a name that exists, of another package with its package", files.Position(group.Pos()), l[0])
					}
				}
				for _, l := range linkThere.FindAllStringSubmatch(group.Text(), -1) {
					folders, found := named[l[1]], false
					for _, other := range folders {
						found = found || declared[other].has(l[2], l[3])
					}
					links++
					if len(folders) > 0 && !found {
						t.Errorf("%s: package %s has no %s", files.Position(group.Pos()), l[1], l[0])
					}
				}
			}
		}
	}
	if links < 300 {
		t.Errorf("found %d links, want many", links)
	}
}
