package clitest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"reflect"
	"strconv"
)

// Eval evaluates an expression for a JSON object that encoding/json decoded. The package comment describes expressions.
func Eval(expression string, object map[string]any) (any, error) {
	e, err := parser.ParseExpr(expression)
	if err != nil {
		return nil, fmt.Errorf("couldn't parse %q: %w", expression, err)
	}
	return scope(object).eval(e)
}

// scope holds the values of an expression's names.
type scope map[string]any

func (s scope) eval(e ast.Expr) (any, error) {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return s.eval(e.X)
	case *ast.BasicLit:
		return literal(e)
	case *ast.Ident:
		return s.name(e.Name)
	case *ast.SelectorExpr:
		return s.one(e.X, func(x any) (any, error) { return field(x, e.Sel.Name) })
	case *ast.IndexExpr:
		return s.two(e.X, e.Index, index)
	case *ast.UnaryExpr:
		return s.one(e.X, func(x any) (any, error) { return unary(e.Op, x) })
	case *ast.BinaryExpr:
		return s.two(e.X, e.Y, func(x, y any) (any, error) { return binary(e.Op, x, y) })
	case *ast.CallExpr:
		if name, ok := e.Fun.(*ast.Ident); ok && len(e.Args) == 1 {
			return s.one(e.Args[0], func(x any) (any, error) { return call(name.Name, x) })
		}
	}
	return nil, fmt.Errorf("expressions of kind %T are not supported", e)
}

func (s scope) one(x ast.Expr, f func(any) (any, error)) (any, error) {
	v, err := s.eval(x)
	if err != nil {
		return nil, err
	}
	return f(v)
}

func (s scope) two(x, y ast.Expr, f func(any, any) (any, error)) (any, error) {
	return s.one(x, func(v any) (any, error) {
		return s.one(y, func(w any) (any, error) { return f(v, w) })
	})
}

func (s scope) name(name string) (any, error) {
	switch name {
	case "true":
		return true, nil
	case "false":
		return false, nil
	case "null":
		return nil, nil
	}
	return field(map[string]any(s), name)
}

func literal(e *ast.BasicLit) (any, error) {
	if e.Kind == token.STRING {
		return strconv.Unquote(e.Value)
	}
	return strconv.ParseFloat(e.Value, 64)
}

// field returns an object's value for a key, or an array of those of an array's entries.
func field(x any, name string) (any, error) {
	switch x := x.(type) {
	case map[string]any:
		if v, ok := x[name]; ok {
			return v, nil
		}
	case []any:
		return each(x, func(v any) (any, error) { return field(v, name) })
	}
	return nil, fmt.Errorf("there is no key %s in %.200v", name, x)
}

func index(x, at any) (any, error) {
	array, ok := x.([]any)
	i, number := at.(float64)
	if !ok || !number || i < 0 || int(i) >= len(array) {
		return nil, fmt.Errorf("there is no entry %v in %.200v", at, x)
	}
	return array[int(i)], nil
}

func each(x []any, f func(any) (any, error)) (any, error) {
	out := make([]any, len(x))
	for i, v := range x {
		var err error
		if out[i], err = f(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func unary(op token.Token, x any) (any, error) {
	switch v := x.(type) {
	case bool:
		if op == token.NOT {
			return !v, nil
		}
	case float64:
		if op == token.SUB {
			return -v, nil
		}
	case []any:
		return each(v, func(v any) (any, error) { return unary(op, v) })
	}
	return nil, fmt.Errorf("operator %s does not apply to %.200v", op, x)
}

// binary applies an operator to two values, to arrays entry by entry.
func binary(op token.Token, x, y any) (any, error) {
	a, wide := x.([]any)
	b, wideToo := y.([]any)
	if !wide && !wideToo {
		return combine(op, x, y)
	}
	n := max(len(a), len(b))
	if n == 0 || wide && wideToo && len(a) != len(b) {
		return nil, fmt.Errorf("couldn't combine an array of %d entries with one of %d", len(a), len(b))
	}
	out, all, truth := make([]any, n), true, false
	for i := range out {
		if wide {
			x = a[i]
		}
		if wideToo {
			y = b[i]
		}
		v, err := binary(op, x, y)
		if err != nil {
			return nil, err
		}
		holds, is := v.(bool)
		out[i], all, truth = v, all && holds, truth || is
	}
	if truth {
		return all, nil
	}
	return out, nil
}

// combine applies an operator to two values that are not arrays.
func combine(op token.Token, x, y any) (any, error) {
	switch op {
	case token.EQL:
		return reflect.DeepEqual(x, y), nil
	case token.NEQ:
		return !reflect.DeepEqual(x, y), nil
	}
	a, ok := x.(bool)
	b, okToo := y.(bool)
	if ok && okToo {
		switch op {
		case token.LAND:
			return a && b, nil
		case token.LOR:
			return a || b, nil
		}
	}
	v, ok := x.(float64)
	w, okToo := y.(float64)
	if ok && okToo {
		return numbers(op, v, w)
	}
	return nil, fmt.Errorf("operator %s does not apply to %.200v and %.200v", op, x, y)
}

func numbers(op token.Token, v, w float64) (any, error) {
	switch op {
	case token.ADD:
		return v + w, nil
	case token.SUB:
		return v - w, nil
	case token.MUL:
		return v * w, nil
	case token.QUO:
		return v / w, nil
	case token.REM:
		return math.Mod(v, w), nil
	case token.LSS:
		return v < w, nil
	case token.LEQ:
		return v <= w, nil
	case token.GTR:
		return v > w, nil
	case token.GEQ:
		return v >= w, nil
	}
	return nil, fmt.Errorf("operator %s does not apply to numbers", op)
}

func call(name string, x any) (any, error) {
	array, wide := x.([]any)
	v, number := x.(float64)
	switch {
	case name == "len" && wide:
		return float64(len(array)), nil
	case name == "sum" && wide:
		var sum any = 0.0
		for _, v := range array {
			var err error
			if sum, err = binary(token.ADD, sum, v); err != nil {
				return nil, err
			}
		}
		return sum, nil
	case wide:
		return each(array, func(v any) (any, error) { return call(name, v) })
	case name == "abs" && number:
		return math.Abs(v), nil
	case name == "sin" && number:
		return math.Sin(v), nil
	}
	return nil, fmt.Errorf("function %s does not apply to %.200v", name, x)
}
