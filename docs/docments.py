"Griffe reads docstrings; the package explains parameters, results and fields in comments behind them. This brings both together."
import ast, io, tokenize

import griffe


def comments_of(lines):
    "The comment that ends each line of code: {number of the line, from 0: text}."
    found = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
            if token.type == tokenize.COMMENT and token.line[:token.start[1]].strip():
                found[token.start[0] - 1] = token.string.lstrip("# ").strip()
    except (tokenize.TokenError, IndentationError): pass   # A signature without its body is cut short
    return found


def source_lines(thing, first, last): return thing.lines_collection[thing.filepath][first - 1:last]


class Docments(griffe.Extension):
    "Comments behind parameters, results and fields become their descriptions."

    def on_function_instance(self, *, node, func, agent, **kwargs):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)): return
        first, last = node.lineno, node.body[0].lineno - (node.body[0].lineno > node.lineno)
        comments = {line + first: text for line, text in comments_of(source_lines(func, first, last)).items()}
        arguments = [*node.args.posonlyargs, *node.args.args, node.args.vararg, *node.args.kwonlyargs, node.args.kwarg]
        words = {argument.end_lineno: argument.arg for argument in filter(None, arguments)}   # The last one on a line
        explained = {words[line]: text for line, text in comments.items() if line in words}
        text = func.docstring.value if func.docstring else ""
        sections = [griffe.DocstringSectionText(text)] if text else []
        rows = [griffe.DocstringParameter(p.name, annotation=p.annotation, value=p.default, description=explained[p.name])
                for p in func.parameters if p.name.lstrip("*") in explained] if explained else []
        if rows: sections.append(griffe.DocstringSectionParameters(rows))
        end = node.returns.end_lineno if node.returns else last
        result = " ".join(text for line, text in sorted(comments.items()) if line >= end and line not in words)
        if result:
            sections.append(griffe.DocstringSectionReturns([griffe.DocstringReturn("", annotation=func.returns, description=result)]))
        if not sections: return
        func.docstring = func.docstring or griffe.Docstring("", parent=func)
        func.docstring.__dict__["parsed"] = sections

    def on_attribute_instance(self, *, node, attr, agent, **kwargs):
        if attr.docstring or not isinstance(node, (ast.Assign, ast.AnnAssign)): return
        comment = comments_of(source_lines(attr, node.end_lineno, node.end_lineno))
        if comment: attr.docstring = griffe.Docstring(next(iter(comment.values())), parent=attr)
