"What MkDocs does to each page: formulas become MathML, names in code become links, and Edit opens the notebook."
import html, re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
INLINE = re.compile(r"(<a\b[^>]*>.*?</a>|<h\d.*?</h\d>|<pre.*?</pre>)|<code>(?:az\.)?(\w+)(\([^<]*\))?</code>", re.S)
IN_CODE = re.compile(r'<span class="n">az</span><span class="o">\.</span><span class="n">(\w+)</span>')


def mathml(match):
    "A formula for the browser's own typesetting."
    words = html.unescape(match[2]).replace("\\Bigl", "\\left").replace("\\Bigr", "\\right")
    if match[1] == "span": return convert(words.strip(), display="inline")
    return convert(words.strip(), display="block").replace("<math ", '<math tabindex="0" ', 1)   # A wide one scrolls


def link_names(content, page, names):
    "Link public names to their reference. Short words such as `play` mean other things too; they need `az.` before them."
    up = "../" * page.url.count("/")
    def address(name):
        module = names[name]
        group = module.split(".")[1] if module.count(".") > 1 else "measure"
        return f'<a class="name" href="{up}reference/{group}/#{module}.{name}">'
    def inline(match):
        name = match[2]
        if match[1] or name not in names: return match[0]
        if name.islower() and "_" not in name and "<code>az." not in match[0]: return match[0]
        return f"{address(name)}{match[0]}</a>"
    def in_code(match): return f"{address(match[1])}{match[0]}</a>" if match[1] in names else match[0]
    return IN_CODE.sub(in_code, INLINE.sub(inline, content))


def on_page_content(content, page, config, files):
    content = FORMULA.sub(mathml, content).replace("<th></th>", "<td></td>")   # An empty header names nothing
    if page.url.startswith("reference/"): return content
    return link_names(content, page, config["extra"]["names"])


def on_page_context(context, page, config, nav):
    address = config["extra"]["address"]
    source = page.meta.get("source")
    page.edit_url = f"{address['git_url']}/edit/{address['branch']}/{source}" if source else None
    return context


MENU = re.compile(r'(<nav class="md-nav" data-md-level="\d+") aria-labelledby="[^"]*"(.*?<label class="md-nav__title"[^>]*>.*?</span>)\s*([^<]*?)\s*</label>', re.S)


def on_post_page(output, page, config):
    "Name the parts of the theme that have no name for a screen reader, or that of an empty label."
    output = MENU.sub(r'\1 aria-label="Menu: \3"\2\3</label>', output)
    for part, name in (('data-md-component="search" role="dialog"', "Search"), ('<header class="md-header"', "Site"),
                       ('<main class="md-main"', "Page")):
        output = output.replace(part, f'{part} aria-label="{name}"')
    return output
