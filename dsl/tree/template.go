package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Template is a handler that you write once and use in several places, in any file. A use replaces params.NAME in an
// expression with the value of that parameter. This happens before all checks. So a template may contain everything
// that a handler may, and a parameter may be a whole field: service: !$ params.service.
type Template struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the template in uses.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Parameters has a schema for each parameter that a use sets. A parameter whose schema has a default is optional.
	Parameters *expr.Value `yaml:"parameters" kind:"map" expr:"no"`

	// Handler is the handler, without its id.
	Handler *expr.Value `yaml:"handler" kind:"map" required:"true"`

	Contracts map[string]*contracts.Contract `yaml:"-"` // of parameters
}

// A Use inserts the handler of a template. Fields of the handler itself replace those of the template. The path of the
// handler stays, with its switches, mocks, metrics and recorded runs. A call would change it.
type Use struct {
	Span diag.Span `yaml:"-"`

	places

	// Template is the id of the template.
	Template string `yaml:"template" required:"true" pattern:"id"`

	// With sets the parameters of the template.
	With *expr.Value `yaml:"with" kind:"map"`
}
