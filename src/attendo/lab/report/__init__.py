"""Reports as HTML, Markdown and SVG, whatever they are about."""
