"""Gradio's colours, sizes and fonts, said in the page's own tokens (``assets/css/tokens.css``).

Every colour is a CSS variable that changes with the theme, so Gradio's light and dark sets are the
same and the page never shows a mixture of both.
"""

from __future__ import annotations

import inspect

import gradio as gr

FONT = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "Noto Sans KR", "sans-serif"]
MONO = ["ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "Liberation Mono", "monospace"]

BY_TOKEN = {
    "var(--bg)": ["body_background_fill", "input_background_fill"],
    "var(--card)": [
        "background_fill_primary",
        "block_background_fill",
        "button_secondary_background_fill",
        "checkbox_background_color",
        "checkbox_label_background_fill_selected",
        "panel_background_fill",
    ],
    "var(--soft)": [
        "background_fill_secondary",
        "button_secondary_background_fill_hover",
        "checkbox_label_background_fill",
        "checkbox_label_background_fill_hover",
        "code_background_fill",
        "stat_background_fill",
    ],
    "var(--ink)": [
        "accordion_text_color",
        "block_title_text_color",
        "body_text_color",
        "button_secondary_text_color",
        "checkbox_label_text_color_selected",
    ],
    "var(--mute)": [
        "block_info_text_color",
        "block_label_text_color",
        "body_text_color_subdued",
        "checkbox_label_text_color",
        "input_placeholder_color",
    ],
    "var(--line)": [
        "block_border_color",
        "border_color_primary",
        "button_secondary_border_color",
        "button_secondary_border_color_hover",
        "checkbox_border_color",
        "checkbox_label_border_color",
        "input_border_color",
        "panel_border_color",
    ],
    "var(--accent)": [
        "border_color_accent",
        "button_primary_background_fill",
        "button_primary_background_fill_hover",
        "button_primary_border_color",
        "checkbox_background_color_selected",
        "checkbox_border_color_focus",
        "checkbox_border_color_selected",
        "color_accent",
        "color_accent_soft",
        "input_border_color_focus",
        "link_text_color",
        "loader_color",
        "slider_color",
    ],
    "var(--accent-ink)": ["button_primary_text_color"],
    "none": [
        "block_shadow",
        "button_primary_shadow",
        "button_secondary_shadow",
        "input_shadow",
        "input_shadow_focus",
    ],
    "0px": ["block_border_width"],
    "1px": ["button_border_width", "input_border_width"],
}

SIZES = {
    "block_info_text_size": "12px",
    "block_label_text_size": "13px",
    "block_padding": "0",
    "block_radius": "12px",
    "block_title_text_size": "13px",
    "block_title_text_weight": "500",
    "body_text_size": "14px",
    "button_large_radius": "10px",
    "button_large_text_size": "14px",
    "button_medium_radius": "10px",
    "button_medium_text_size": "14px",
    "button_small_radius": "8px",
    "form_gap_width": "0px",
    "input_padding": "9px 12px",
    "input_radius": "10px",
    "input_text_size": "14px",
    "layout_gap": "12px",
}


def create_theme() -> gr.themes.Base:
    theme = gr.themes.Base(font=FONT, font_mono=MONO)
    known = inspect.signature(theme.set).parameters
    colours = {
        name: token
        for token, names in BY_TOKEN.items()
        for plain in names
        for name in (plain, f"{plain}_dark")
        if name in known
    }
    return theme.set(**colours, **SIZES)
