package tree

import (
	"procaas/dsl/contracts"
	"procaas/dsl/diag"
	"procaas/dsl/expr"
)

// A Template is a handler that is written once and used in several places, in any
// file. Where its handler says params.NAME in an expression, a use puts what it gives
// for that parameter. This happens before anything is checked, so a template may hold
// whatever a handler may, and a parameter may stand for a whole field: service: !$
// params.service.
type Template struct {
	Span diag.Span `yaml:"-"`

	places

	// ID names the template in uses.
	ID string `yaml:"id" required:"true" pattern:"id"`

	// Parameters says what a use gives: a schema by the name of each parameter. One
	// whose schema has a default may be left out.
	Parameters *expr.Value `yaml:"parameters" kind:"map" expr:"no"`

	// Handler is the handler, without its id.
	Handler *expr.Value `yaml:"handler" kind:"map" required:"true"`

	Contracts map[string]*contracts.Contract `yaml:"-"` // of parameters
}

// A Use puts the handler of a template in the place of this one. What the handler says
// itself counts before what the template says.
type Use struct {
	Span diag.Span `yaml:"-"`

	places

	// Template is the id of the template.
	Template string `yaml:"template" required:"true" pattern:"id"`

	// With gives the parameters of the template.
	With *expr.Value `yaml:"with" kind:"map"`
}
